//! Statistics: medians of ratios measured in alternating rounds, percentiles, slopes.

/// The ratio of two things that were measured in alternating rounds.
#[derive(Debug, Clone, Copy)]
pub struct Ratio {
    /// Median of the per-round ratios.
    pub median: f64,
    /// Least of them.
    pub least: f64,
    /// Greatest of them.
    pub most: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Ratio {
    /// `above[i] / below[i]` for each round `i`.
    pub fn of(above: &[f64], below: &[f64]) -> Self {
        let ratios: Vec<f64> = above.iter().zip(below).map(|(a, b)| a / b).collect();
        Self {
            median: median(&ratios),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            rounds: ratios.len(),
        }
    }
}

/// The middle value; not a number when there is none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value that `share` of all values do not exceed (nearest rank).
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rank lies between 0 and the number of values, which is far below 2^52"
)]
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// Least-squares slope of `y` over `x`.
#[allow(clippy::cast_precision_loss, reason = "a handful of points")]
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    covariance / variance
}

/// Least-squares slope in log-log: the exponent of growth.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    slope(&logs)
}
