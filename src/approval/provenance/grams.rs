//! Fingerprints of texts: of any run of [`GRAM`] + [`WINDOW`] − 1 letters and digits that a text has, at least one is kept.
//!
//! Winnowing (Schleimer, Wilkerson, Aiken: "Winnowing: Local Algorithms for Document Fingerprinting", SIGMOD 2003): of every
//! [`WINDOW`] successive hashes over [`GRAM`] letters the smallest is chosen.

/// The number of letters in a hash.
pub(super) const GRAM: usize = 32;

/// Of how many successive hashes one is chosen.
pub(super) const WINDOW: usize = 32;

/// The number of different letters that a gram must have to be kept: one that repeats a few letters is found in many texts.
const DIFFERENT: u32 = 8;

/// A random value for each byte: the digits of splitmix64, whose only task is to be different.
static VALUES: [u64; 256] = values();

const fn values() -> [u64; 256] {
    let mut values = [0; 256];
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut index = 0;
    while index < 256 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        values[index] = mixed(state);
        index += 1;
    }
    values
}

pub(super) const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Calls `each` with the position of the last letter of every gram, and its hash.
pub(super) fn hashes(letters: &[u8], mut each: impl FnMut(usize, u64)) {
    if letters.len() < GRAM {
        return;
    }
    let value = |letter: u8| VALUES[usize::from(letter)];
    let mut hash =
        letters[..GRAM - 1].iter().fold(0_u64, |hash, letter| hash.rotate_left(1) ^ value(*letter));
    let leaving =
        std::iter::once(0).chain(letters.iter().map(|letter| value(*letter).rotate_left(GRAM as u32)));
    for ((position, entering), leaving) in letters.iter().enumerate().skip(GRAM - 1).zip(leaving) {
        hash = hash.rotate_left(1) ^ value(*entering) ^ leaving;
        // A cyclic polynomial alone is not evenly distributed in its low bits.
        each(position, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Calls `each` with the hashes that are chosen, each once for its place.
pub(super) fn winnow(letters: &[u8], mut each: impl FnMut(u64)) {
    let mut window = [u64::MAX; WINDOW];
    let mut count = 0_usize;
    let mut smallest = 0_usize;
    let mut chosen = usize::MAX;
    let mut give = |index: usize, hash: u64| {
        if is_distinctive(&letters[index..index + GRAM]) {
            each(hash);
        }
    };
    hashes(letters, |_, hash| {
        window[count % WINDOW] = hash;
        if smallest + WINDOW == count {
            // The smallest has left: the rightmost of the smallest that are left.
            smallest = count;
            for back in 1..WINDOW.min(count + 1) {
                if window[(count - back) % WINDOW] < window[smallest % WINDOW] {
                    smallest = count - back;
                }
            }
        } else if hash <= window[smallest % WINDOW] {
            smallest = count;
        }
        count += 1;
        if count >= WINDOW && chosen != smallest {
            chosen = smallest;
            give(smallest, window[smallest % WINDOW]);
        }
    });
    // A text that is shorter than a window.
    if count > 0 && count < WINDOW {
        give(smallest, window[smallest % WINDOW]);
    }
}

/// Whether a gram has enough different letters to recognise a text by it.
fn is_distinctive(gram: &[u8]) -> bool {
    let letters = gram.iter().fold(0_u64, |letters, letter| letters | 1 << (letter % 64));
    letters.count_ones() >= DIFFERENT
}
