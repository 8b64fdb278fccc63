//! The log. Its filter is checked: tracing takes a misspelt level such as `inf` as the only target
//! to log.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The crates of Tautline, which are the targets of its log.
const OWN: &str = "
    tautline tautline_admission tautline_agent_link tautline_api tautline_cel
    tautline_certificates tautline_conformance tautline_console tautline_controller
    tautline_core tautline_gpu_agent tautline_gpu_placement tautline_gpu_sharing
    tautline_gpu_simulator tautline_gpu_slice tautline_latency tautline_latency_agent
    tautline_latency_protocol tautline_model_registry tautline_mutating_policy tautline_nvml
    tautline_pod_requeue tautline_proto tautline_provider_client tautline_report
    tautline_rtt_model tautline_runtime tautline_scheduler_extender tautline_scripted
    tautline_sdk tautline_serve tautline_structured_merge tautline_traces tautline_types
";

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// A malformed log filter, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("log filter {0:?}: {1}; write a level such as info, or target=level")]
pub struct BadFilter(String, FilterError);

#[derive(Debug, thiserror::Error)]
enum FilterError {
    #[error("{0:?} is not a level ({levels})", levels = LEVELS.join(", "))]
    Level(String),
    #[error(
        "{0:?} is not a target of Tautline; write tautline for all of it, or one of its crates, \
         such as tautline_runtime"
    )]
    Target(String),
    #[error(transparent)]
    Other(#[from] ParseError),
}

/// Starts the log on standard error. `filter` is a level or tracing's directives ("info",
/// "tautline_provider_client=debug"). A second call has no effect.
///
/// # Errors
/// The filter is malformed, or a bare target, which usually is a misspelt level.
pub fn init(format: LogFormat, filter: &str) -> Result<(), BadFilter> {
    let filter = parse(filter).map_err(|e| BadFilter(filter.to_owned(), e))?;
    let colour = std::io::stderr().is_terminal();
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colour);
    _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    Ok(())
}

/// The targets of the client library's errors, with their levels. It logs each failed request, but
/// only the caller knows whether the failure is an error, and logs it once.
const CLIENT_ERRORS: [&str; 2] = [
    "kube_client::client::builder=off",
    "kube_runtime::watcher=error",
];

/// Parses a log filter. It also fails on an unknown level, or an unknown target `tautline...`.
fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let mut directives: Vec<&str> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        check(directive)?;
    }
    if !directives.iter().any(|d| d.starts_with("kube")) {
        directives.extend(CLIENT_ERRORS);
    }
    Ok(EnvFilter::try_new(directives.join(","))?)
}

fn check(directive: &str) -> Result<(), FilterError> {
    // tracing checks spans, which may follow the target or stand alone.
    let (target, level) = match directive.rsplit_once('=') {
        _ if directive.contains('[') => (directive.split('[').next().unwrap_or_default(), None),
        Some((target, level)) => (target, Some(level)),
        None => ("", Some(directive)),
    };
    if let Some(level) = level {
        let known = LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level));
        if !known && !level.parse().is_ok_and(|number: u8| number < 6) {
            return Err(FilterError::Level(level.to_owned()));
        }
    }
    let name = target.split("::").next().unwrap_or_default();
    let stem = name.split(['_', '-']).next().unwrap_or_default();
    let meant = !stem.is_empty() && strsim::levenshtein(stem, "tautline") <= 2;
    if meant && OWN.split_whitespace().all(|own| own != name) {
        return Err(FilterError::Target(name.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{io::Write, sync::Arc};

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn parse_rejects_misspelt_levels() {
        for good in [
            "info",
            "WARN",
            "3",
            "warn,tautline=info",
            "tautline_provider_client::client=debug, kube=off",
            "hyper=trace,tautline_gpu_slice=info",
            "tautline[filter]=debug",
            "[filter{pod=web-0}]=trace",
        ] {
            parse(good).unwrap_or_else(|e| panic!("{good}: {e}"));
        }
        for (bad, part) in [
            ("", "is not a level"),
            ("inf", "\"inf\" is not a level (off, error"),
            ("info,", "is not a level"),
            ("7", "is not a level"),
            ("tautline=inf", "\"inf\" is not a level"),
            ("tautlin=debug", "\"tautlin\" is not a target of Tautline"),
            ("tuatline=debug", "is not a target of Tautline"),
            ("tautline_discovry=debug", "is not a target of Tautline"),
            ("tautline-runtime=debug", "is not a target of Tautline"),
            ("info,a=b=c", "is not a level"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(part), "{bad}: {error}");
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn errors_of_the_client_library_are_logged_on_request_alone() {
        let logged = |filter: &str| {
            let lines = Lines::default();
            let writer = lines.clone();
            let subscriber = tracing_subscriber::fmt()
                .with_env_filter(parse(filter).unwrap())
                .with_writer(move || writer.clone())
                .finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::error!(target: "kube_client::client::builder", "raw");
                tracing::error!(target: "tautline_runtime::watch", "own");
            });
            String::from_utf8(lines.0.lock().clone()).unwrap()
        };
        for filter in ["info", "debug", "warn,tautline=trace"] {
            let lines = logged(filter);
            assert!(!lines.contains("raw") && lines.contains("own"), "{lines}");
        }
        for filter in ["info,kube_client=error", "kube=info,kube_client=debug"] {
            assert!(logged(filter).contains("raw"), "{filter}");
        }
    }

    #[test]
    fn own_targets_are_the_crates_of_the_workspace() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
        let workspace = read("Cargo.toml");
        let members = workspace.split_once("members = [").unwrap().1;
        let members = members.split_once(']').unwrap().0.split('"');
        let outside = |m: &&str| m.starts_with("tests/") || m.starts_with("examples/");
        let members = members.skip(1).step_by(2).filter(|m| !outside(m));
        let mut expected: Vec<String> = members
            .map(|member| {
                let manifest = read(&format!("{member}/Cargo.toml"));
                let name = manifest.split_once("name = \"").unwrap().1;
                name.split_once('"').unwrap().0.replace('-', "_")
            })
            .filter(|name| !["tautline_tests", "tautline_codegen"].contains(&&**name))
            .collect();
        expected.sort();
        assert_eq!(OWN.split_whitespace().collect::<Vec<_>>(), expected);
    }
}
