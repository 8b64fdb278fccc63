use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

tautline_runtime::metrics! {
    /// The metrics of rotations, and of the expiry of the served certificate.
    pub struct CertificateMetrics {
        rotations: Family<Result, Counter>
            => "certificate_rotations", "Certificate rotations by result";
        expiry: Gauge => "certificate_expiry_timestamp_seconds",
            "Expiry of the generated serving certificate in Unix time; 0: none is served";
    }
    labels Result { result: &'static str }
}

impl CertificateMetrics {
    pub(crate) fn rotation(&self, result: &'static str) {
        self.rotations.get_or_create(&Result { result }).inc();
    }

    pub(crate) fn expires(&self, unix: u64) {
        self.expiry.set(i64::try_from(unix).unwrap_or(i64::MAX));
    }
}
