use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Result {
    result: &'static str,
}

/// Rotations, and when the served certificate expires.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    rotations: Family<Result, Counter>,
    expiry: Gauge,
}

impl CertificateMetrics {
    /// Registers the metrics under names that begin with `prefix`, as in `admission_`.
    pub fn register(prefix: &str, registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            format!("{prefix}certificate_rotations"),
            "Certificate rotations by result",
            metrics.rotations.clone(),
        );
        registry.register(
            format!("{prefix}certificate_expiry_timestamp_seconds"),
            "Expiry of the generated serving certificate in Unix time; 0: none is served",
            metrics.expiry.clone(),
        );
        metrics
    }

    /// Gives each metric with labels a series, for the reference of metrics.
    pub fn add_examples(&self) {
        _ = self.rotations.get_or_create(&Default::default());
    }

    pub(crate) fn rotation(&self, result: &'static str) {
        self.rotations.get_or_create(&Result { result }).inc();
    }

    pub(crate) fn expires(&self, unix: u64) {
        self.expiry.set(i64::try_from(unix).unwrap_or(i64::MAX));
    }
}
