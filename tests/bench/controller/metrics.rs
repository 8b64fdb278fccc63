//! Reading a page of metrics in Prometheus' text form.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// One line of a page.
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// The samples of a page.
pub struct Page(Vec<Sample>);

impl Page {
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(sample).collect())
    }

    /// The value of a metric, summed over its labels.
    ///
    /// # Errors
    /// The page has no metric of exactly this name.
    pub fn total(&self, name: &str) -> Result<f64> {
        let mut values = self.of(name).map(|s| s.value).peekable();
        values
            .peek()
            .with_context(|| format!("no metric {name} on the page"))?;
        Ok(values.sum())
    }

    /// The values of a metric, summed by the `key` of their labels; values without a key are
    /// left out.
    pub fn by(
        &self,
        name: &str,
        key: impl Fn(&BTreeMap<String, String>) -> Option<String>,
    ) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.of(name) {
            if let Some(key) = key(&sample.labels) {
                *sums.entry(key).or_insert(0.0) += sample.value;
            }
        }
        sums
    }

    /// The observations of a histogram between `earlier` and this page.
    ///
    /// # Errors
    /// This page has no histogram of this name.
    pub fn observed_since(&self, earlier: &Self, name: &str) -> Result<Observed> {
        let since = |name: &str| -> Result<f64> {
            Ok(self.total(name)? - earlier.total(name).unwrap_or(0.0))
        };
        let buckets = |page: &Self| page.by(&format!("{name}_bucket"), |l| l.get("le").cloned());
        let (now, before) = (buckets(self), buckets(earlier));
        let mut counts: Vec<(f64, f64)> = now
            .iter()
            .filter_map(|(le, count)| {
                let bound = le.replace("+Inf", "inf").parse().ok()?;
                Some((bound, count - before.get(le).unwrap_or(&0.0)))
            })
            .collect();
        counts.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(Observed {
            buckets: counts,
            count: since(&format!("{name}_count"))?,
            sum: since(&format!("{name}_sum"))?,
        })
    }

    fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |s| s.name == name)
    }
}

/// A histogram's observations over a time.
pub struct Observed {
    /// Upper bounds, with the number of observations up to each.
    buckets: Vec<(f64, f64)>,
    pub count: f64,
    sum: f64,
}

impl Observed {
    /// The mean; none if nothing was observed.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The upper bound of the quantile's bucket; infinite for the last one.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let enough = |(bound, count): &(f64, f64)| (*count >= q * self.count).then_some(*bound);
        (self.count > 0.0)
            .then(|| self.buckets.iter().find_map(enough))
            .flatten()
    }
}

/// `name{label="value",...} value [timestamp]`
fn sample(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inner) => labels(inner)?,
        None => (BTreeMap::new(), rest),
    };
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: rest.split_whitespace().next()?.parse().ok()?,
    })
}

/// Labels up to the closing brace, and what follows it. A value may hold commas,
/// braces, and quotes behind a backslash.
fn labels(mut rest: &str) -> Option<(BTreeMap<String, String>, &str)> {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut escaped = false;
        let end = after.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        })?;
        labels.insert(name.to_owned(), after[..end].to_owned());
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP evaluations Evaluations.
# TYPE evaluations counter
evaluations_total{outcome=\"a,}\\\"b\",rule=\"r\"} 3
evaluations_total{outcome=\"c\",rule=\"r\"} 4 1700000000
evaluations_total_of_others 100
lag_seconds_sum 1.5
lag_seconds_count 10
lag_seconds_bucket{le=\"0.1\"} 8
lag_seconds_bucket{le=\"1.0\"} 9
lag_seconds_bucket{le=\"+Inf\"} 10
nonsense
# EOF
";

    #[test]
    fn sums_labels_of_exactly_the_name() {
        let page = Page::parse(PAGE);
        assert_eq!(page.total("evaluations_total").unwrap(), 7.0);
        let by = page.by("evaluations_total", |l| l.get("outcome").cloned());
        assert_eq!(by["a,}\\\"b"], 3.0);
        let error = page.total("evaluations").unwrap_err().to_string();
        assert_eq!(error, "no metric evaluations on the page");
    }

    #[test]
    fn a_histogram_counts_what_came_since() {
        let page = Page::parse(PAGE);
        let lag = page
            .observed_since(&Page::parse(""), "lag_seconds")
            .unwrap();
        assert_eq!(lag.mean(), Some(0.15));
        assert_eq!(lag.quantile(0.5), Some(0.1));
        assert_eq!(lag.quantile(0.9), Some(1.0));
        assert_eq!(lag.quantile(0.99), Some(f64::INFINITY));
        let none = page.observed_since(&page, "lag_seconds").unwrap();
        assert_eq!(
            (none.count, none.mean(), none.quantile(0.5)),
            (0.0, None, None)
        );
        assert!(page.observed_since(&page, "other_seconds").is_err());
    }
}
