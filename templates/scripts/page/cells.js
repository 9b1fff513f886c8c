// Values of a table's cells, their order, and a table as CSV.

/** @typedef {Pick<HTMLTableRowElement, "cells">} Cells */

/** The full text of a cell. @param {HTMLTableRowElement} row @param {number} column */
export const textOf = (row, column) => {
  const cell = row.cells[column];
  return cell.dataset.v ?? cell.textContent ?? "";
};

/** What a text says: a number, a text, or nothing known. @param {string} text */
export const valueOf = (text) => {
  if (text === "n/a" || text === "") return null;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
};

/** Order of two values; what is not known stays at the end in both directions.
 * @param {string | number | null} a @param {string | number | null} b @param {boolean} isFalling */
export const compare = (a, b, isFalling) => {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  const order =
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });
  return isFalling ? -order : order;
};

/** A cell of a CSV file; what a spreadsheet would run as a formula is text. @param {string} text */
export const quoted = (text) => {
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

/** @param {string[][]} rows */
export const csvOf = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n");
