//! Seeded hashes and random numbers that are the same in every process.

/// Mixes the bits of `z` with SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(crate) fn pair(a: u64, b: u64) -> u64 {
    mix(a ^ mix(b))
}

/// Returns the hash of a text within a scope; never 0, which stands for "unknown".
pub(crate) fn text(scope: u64, text: &str) -> u64 {
    // FNV-1a, then mixed.
    let fnv = text.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, byte| {
        (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    pair(scope, fnv).max(1)
}

pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Returns a nearly normal number of mean 0 and deviation 1: twelve uniform ones (Irwin-Hall).
    pub fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.unit()).sum::<f32>() - 6.0
    }
}
