// The calibration that the Calibrate page made, kept in this browser only.

const NAME = "capmodel";
const STORE = "calibrations";

function store(mode) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(NAME, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => resolve(opening.result.transaction(STORE, mode).objectStore(STORE));
  });
}

function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The content of the kept calibration; null where there is none, or none may be kept. */
export async function ownCalibration() {
  try {
    return (await done((await store("readonly")).get("own"))) ?? null;
  } catch {
    return null;
  }
}

export async function keepCalibration(content) {
  await done((await store("readwrite")).put(content, "own"));
}

export async function forgetCalibration() {
  await done((await store("readwrite")).delete("own"));
}
