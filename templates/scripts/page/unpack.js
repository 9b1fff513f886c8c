// What the page carries deflated, unpacked: bytes, texts and runs of numbers.

/** @param {string} base64 */
const inflate = async (base64) => {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return inflated(bytes);
};

/** @param {Uint8Array<ArrayBuffer>} bytes */
const inflated = async (bytes) => {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

/** The value of deflated JSON. @param {string} base64 */
export const inflatedJson = async (base64) => JSON.parse(new TextDecoder().decode(await inflate(base64)));

/** Reads tables of unsigned LEB128 numbers, one after the other. @param {Uint8Array} bytes @returns {TableReader} */
export const tableReader = (bytes) => {
  let at = 0;
  /** @param {number} count @param {boolean} isWide */
  const column = (count, isWide) => {
    const out = isWide ? new Float64Array(count) : new Uint32Array(count);
    for (let i = 0; i < count; i++) {
      let value = 0;
      let factor = 1;
      let byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * factor;
        factor *= 128;
      } while (byte > 127);
      out[i] = value;
    }
    return out;
  };
  return ({ count, columns }) => {
    /** @type {any} */
    const table = { count };
    for (const [name, isWide] of Object.entries(columns)) table[name] = column(count, isWide);
    if (table.start) addUp(table.start);
    return table;
  };
};

/** Differences, which may be negative (0, -1, 1, -2 as 0, 1, 2, 3), become moments. @param {Float64Array} starts */
const addUp = (starts) => {
  let t = 0;
  for (let i = 0; i < starts.length; i++) {
    t += starts[i] % 2 ? -(starts[i] + 1) / 2 : starts[i] / 2;
    starts[i] = t;
  }
};

/** What is said, and what reads the tables that it speaks of.
 * @param {string} meta @param {string} numbers @returns {Promise<[any, TableReader]>} */
export const unpacked = async (meta, numbers) => {
  const [told, bytes] = await Promise.all([inflatedJson(meta), inflate(numbers)]);
  return [told, tableReader(bytes)];
};
