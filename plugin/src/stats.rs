//! Statistics in bounded memory.

use std::collections::BTreeMap;

/// Distinct values kept exactly; beyond, new ones are rounded (to 1/64).
const DISTINCT: usize = 1 << 16;

/// A distribution of 64-bit values: exact as long as there are at most
/// 65,536 distinct ones. Minimum, maximum and sum are always exact.
#[derive(Debug, Default)]
pub struct Stats {
    counts: BTreeMap<u64, u64>,
    n: u64,
    sum: u128,
    max: u64,
    min: u64,
}

impl Stats {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.min = if self.n == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.n += 1;
        self.sum += u128::from(value);
        let full = self.counts.len() >= DISTINCT && !self.counts.contains_key(&value);
        *self.counts.entry(if full { rounded(value) } else { value }).or_default() += 1;
    }

    /// The value below or at which `numerator / denominator` of all values lie.
    #[must_use]
    pub fn quantile(&self, numerator: u64, denominator: u64) -> u64 {
        let rank = (self.n * numerator).div_ceil(denominator).max(1);
        let mut seen = 0;
        for (value, count) in &self.counts {
            seen += count;
            if seen >= rank {
                return *value;
            }
        }
        0
    }

    /// As members of a JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        format!(
            "\"n\":{},\"min\":{},\"p1\":{},\"median\":{},\"p99\":{},\"max\":{},\"sum\":{}",
            self.n,
            self.min,
            self.quantile(1, 100),
            self.quantile(1, 2),
            self.quantile(99, 100),
            self.max,
            self.sum
        )
    }
}

/// The value with its upper seven bits kept.
fn rounded(value: u64) -> u64 {
    let spare = (64 - value.leading_zeros()).saturating_sub(7);
    value >> spare << spare
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_values_are_exact() {
        let mut stats = Stats::default();
        (1..=100).for_each(|v| stats.add(v));
        assert_eq!(stats.quantile(1, 2), 50);
        assert_eq!(stats.quantile(99, 100), 99);
        assert_eq!((stats.min, stats.max, stats.sum), (1, 100, 5050));
    }

    #[test]
    fn memory_is_bounded_and_extremes_stay_exact() {
        let mut stats = Stats::default();
        (0..300_000).for_each(|v| stats.add(v * 7));
        assert!(stats.counts.len() <= DISTINCT + 64 * 64);
        assert_eq!(stats.max, 299_999 * 7);
        let median = stats.quantile(1, 2);
        assert!(median.abs_diff(150_000 * 7) <= median / 64, "{median}");
    }
}
