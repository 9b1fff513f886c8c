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

/** Reads runs of unsigned LEB128 numbers. @param {Uint8Array} bytes @returns {NumberReader} */
export const numberReader = (bytes) => {
  let at = 0;
  /** @param {number} count @param {any} make */
  const read = (count, make = Float64Array) => {
    const out = new make(count);
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
  return read;
};

/** A part that is read after the first picture: what it says of itself, and its numbers.
 * @param {Packed} pair @returns {Promise<[any, NumberReader]>} */
export const unpacked = async ([meta, numbers]) => {
  const [told, bytes] = await Promise.all([inflatedJson(meta), inflate(numbers)]);
  return [told, numberReader(bytes)];
};
