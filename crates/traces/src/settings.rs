//! Reads and checks the environment variables of OpenTelemetry in which its SDK would ignore
//! mistakes.

use std::path::PathBuf;

use http::Uri;

use super::TraceError;

const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub endpoint: String,
    pub has_tls: bool,
    pub ca: Option<PathBuf>,
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Settings {
    /// Reads the settings; returns `None` if traces are off. `env` must return no empty values.
    pub fn read(
        flag: Option<&str>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, TraceError> {
        let of_traces = |what: &str| {
            let names = [
                format!("OTEL_EXPORTER_OTLP_TRACES_{what}"),
                format!("OTEL_EXPORTER_OTLP_{what}"),
            ];
            names.into_iter().find_map(|n| env(&n).map(|v| (n, v)))
        };
        let is_off = env("OTEL_SDK_DISABLED").is_some_and(|v| v.eq_ignore_ascii_case("true"))
            || env("OTEL_TRACES_EXPORTER").is_some_and(|v| v == "none");
        let by_flag = flag.map(|url| ("--traces-endpoint".to_owned(), url.to_owned()));
        let Some((name, endpoint)) = by_flag.or_else(|| of_traces("ENDPOINT")) else {
            return Ok(None);
        };
        if is_off {
            return Ok(None);
        }
        let has_tls = has_tls(&name, &endpoint)?;
        if let Some((name, protocol)) = of_traces("PROTOCOL").filter(|(_, p)| p != "grpc") {
            return Err(TraceError(format!(
                "{name}: {protocol:?} is not supported; set grpc, and the collector's port for \
                 it, usually 4317"
            )));
        }
        check_sampler(&env)?;
        let path = |what| of_traces(what).map(|(_, path)| PathBuf::from(path));
        Ok(Some(Self {
            endpoint,
            has_tls,
            ca: path("CERTIFICATE"),
            identity: path("CLIENT_CERTIFICATE").zip(path("CLIENT_KEY")),
        }))
    }
}

fn has_tls(name: &str, endpoint: &str) -> Result<bool, TraceError> {
    let uri = endpoint.parse::<Uri>().ok();
    let scheme = uri.as_ref().filter(|u| u.host().is_some());
    match scheme.and_then(Uri::scheme_str) {
        Some("http") => Ok(false),
        Some("https") => Ok(true),
        _ => Err(TraceError(format!(
            "{name}: {endpoint:?} is not the URL of a collector; write http://HOST:4317, or \
             https:// for TLS"
        ))),
    }
}

fn check_sampler(env: impl Fn(&str) -> Option<String>) -> Result<(), TraceError> {
    let Some(sampler) = env("OTEL_TRACES_SAMPLER") else {
        return Ok(());
    };
    if !SAMPLERS.contains(&sampler.as_str()) {
        return Err(TraceError(format!(
            "OTEL_TRACES_SAMPLER: {sampler:?} is unknown; set one of {}",
            SAMPLERS.join(", ")
        )));
    }
    let ratio = env("OTEL_TRACES_SAMPLER_ARG").unwrap_or_default();
    let in_range = |r: f64| (0.0..=1.0).contains(&r);
    if sampler.ends_with("traceidratio") && !ratio.parse().is_ok_and(in_range) {
        return Err(TraceError(format!(
            "OTEL_TRACES_SAMPLER_ARG: {ratio:?} is not a ratio; set a number from 0 to 1"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(flag: Option<&str>, env: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let value = |name: &str| {
            let found = env.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(flag, value).map_err(|e| e.to_string())
    }

    fn endpoint(flag: Option<&str>, env: &[(&str, &str)]) -> Option<String> {
        read(flag, env).unwrap().map(|s| s.endpoint)
    }

    const URL: &str = "http://collector:4317";

    #[test]
    fn traces_are_off_without_an_endpoint() {
        assert_eq!(read(None, &[]), Ok(None));
        assert_eq!(read(None, &[("OTEL_TRACES_SAMPLER", "odd")]), Ok(None));
        for off in [
            ("OTEL_SDK_DISABLED", "TRUE"),
            ("OTEL_TRACES_EXPORTER", "none"),
        ] {
            assert_eq!(read(Some(URL), &[off]), Ok(None));
        }
    }

    #[test]
    fn endpoint_of_the_flag_comes_before_that_of_traces_and_that_of_all_signals() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4317"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317"),
        ];
        assert_eq!(endpoint(Some(URL), &all).as_deref(), Some(URL));
        assert_eq!(endpoint(None, &all).as_deref(), Some("http://traces:4317"));
        let one = &all[..1];
        assert_eq!(endpoint(None, one).as_deref(), Some("http://all:4317"));
    }

    #[test]
    fn https_is_tls_with_the_files_of_the_environment() {
        let files = [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/cert"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/key"),
        ];
        let settings = read(Some("https://c:4317"), &files).unwrap().unwrap();
        assert!(settings.has_tls);
        assert_eq!(settings.ca, Some("/ca".into()));
        assert_eq!(settings.identity, Some(("/cert".into(), "/key".into())));
        assert!(!read(Some(URL), &[]).unwrap().unwrap().has_tls);
    }

    #[test]
    fn errors_name_the_setting_and_the_mend() {
        for url in ["collector:4317", "collector", "/path", "grpc://c:4317", ""] {
            let error = read(Some(url), &[]).unwrap_err();
            let is = format!("--traces-endpoint: {url:?} is not the URL of a collector; write");
            assert!(error.starts_with(&is), "{error}");
        }
        for (env, part) in [
            (
                vec![("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")],
                "OTEL_EXPORTER_OTLP_PROTOCOL: \"http/protobuf\" is not supported; set grpc",
            ),
            (
                vec![("OTEL_TRACES_SAMPLER", "xray")],
                "OTEL_TRACES_SAMPLER: \"xray\" is unknown; set one of always_on",
            ),
            (
                vec![("OTEL_TRACES_SAMPLER", "traceidratio")],
                "OTEL_TRACES_SAMPLER_ARG: \"\" is not a ratio",
            ),
            (
                vec![
                    ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
                    ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
                ],
                "OTEL_TRACES_SAMPLER_ARG: \"1.5\" is not a ratio; set a number from 0 to 1",
            ),
        ] {
            let error = read(Some(URL), &env).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
        let good = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.1"),
        ];
        assert!(read(Some(URL), &good).unwrap().is_some());
    }
}
