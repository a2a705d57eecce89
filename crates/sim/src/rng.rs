//! Seeded randomness (SplitMix64). Each concern draws from a stream of its own, so that taking one thing out of
//! a schedule leaves the draws of the others as they are.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng(mix(seed ^ 0x5851_f42d_4c95_7f2d).wrapping_add(mix(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// In `[0, n)`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
    pub fn index(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }
    /// In `[from, to]`.
    pub fn range(&mut self, from: i64, to: i64) -> i64 {
        from + self.below((to - from).max(0) as u64 + 1) as i64
    }
    /// True in `n` of 1000 cases.
    pub fn mille(&mut self, n: u32) -> bool {
        self.below(1000) < u64::from(n)
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())]
    }
}
