//! The wishes of the variables `OTEL_*` of ipybox's environment. The SDK reads more of them itself: the resource, the sampler,
//! headers, compression, limits and intervals. A `.env` sets none of them.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Url;

/// Turns everything off, if it is `true`.
const SDK_DISABLED: &str = "OTEL_SDK_DISABLED";
/// The way to pass on contexts: `tracecontext` or `none`. Default: `tracecontext`.
const PROPAGATORS: &str = "OTEL_PROPAGATORS";
/// Which spans are recorded.
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
/// Whether spans have arguments and results, if it is `true` or says that spans have contents.
const CAPTURE_CONTENT: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
/// The collector, for all signals: `http://localhost:4318`.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The protocol, for all signals.
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
/// The time that a request may take, for all signals, in milliseconds.
const TIMEOUT: &str = "OTEL_EXPORTER_OTLP_TIMEOUT";
/// The time that an export of spans may take, in milliseconds: the SDK's, and ours for the last one.
const EXPORT_TIMEOUT: &str = "OTEL_BSP_EXPORT_TIMEOUT";
/// A file of certificates (PEM) that are trusted too, for all signals.
const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";

/// The protocol that is spoken.
const HTTP_PROTOBUF: &str = "http/protobuf";

/// The address at which collectors listen.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// The timeout that the specification names.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// The samplers that the SDK has.
#[rustfmt::skip]
const SAMPLERS: &[&str] = &[
    "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
    "parentbased_traceidratio",
];

/// The wanted telemetry.
#[derive(Debug, Default, PartialEq)]
pub(super) struct TelemetrySettings {
    /// The collector of spans, if they are wanted.
    pub(super) traces: Option<CollectorEndpoint>,
    /// The same of metrics.
    pub(super) metrics: Option<CollectorEndpoint>,
    /// The same of the audit log.
    pub(super) logs: Option<CollectorEndpoint>,
    /// The time that the last export may take, if it is set.
    pub(super) last_export: Option<Duration>,
    pub(super) has_contents: bool,
    pub(super) propagates: bool,
    /// The wishes that cannot be fulfilled, for the user.
    pub(super) warnings: Vec<String>,
}

/// A collector, for one signal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CollectorEndpoint {
    pub(super) url: Url,
    pub(super) timeout: Duration,
    pub(super) certificate: Option<PathBuf>,
}

/// A kind of exported data, with its variables.
struct Signal {
    /// In words.
    what: &'static str,
    exporter: &'static str,
    /// The beginning of the variables that win over those for all signals.
    prefix: &'static str,
    path: &'static str,
    /// Whether the endpoint for all signals turns it on.
    is_general: bool,
}

const TRACES: Signal = Signal {
    what: "spans",
    exporter: "OTEL_TRACES_EXPORTER",
    prefix: "OTEL_EXPORTER_OTLP_TRACES_",
    path: "v1/traces",
    is_general: true,
};

const METRICS: Signal = Signal {
    what: "metrics",
    exporter: "OTEL_METRICS_EXPORTER",
    prefix: "OTEL_EXPORTER_OTLP_METRICS_",
    path: "v1/metrics",
    is_general: true,
};

/// The audit log has the arguments of calls, which spans have not: it is sent if somebody has asked for it by name.
const LOGS: Signal = Signal {
    what: "logs",
    exporter: "OTEL_LOGS_EXPORTER",
    prefix: "OTEL_EXPORTER_OTLP_LOGS_",
    path: "v1/logs",
    is_general: false,
};

impl TelemetrySettings {
    /// Reads them; `variable` has the values of variables.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        // The specification: an empty value is none.
        let variables = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let mut settings = Self::default();
        if variables(SDK_DISABLED).is_some_and(|value| value.trim().eq_ignore_ascii_case("true")) {
            return settings;
        }
        let mut reader = SettingsReader { variables: &variables, warnings: Vec::new() };
        settings.traces = reader.signal(&TRACES);
        settings.metrics = reader.signal(&METRICS);
        settings.logs = reader.signal(&LOGS);
        let last_export = reader.value(EXPORT_TIMEOUT).and_then(|value| value.parse().ok());
        settings.last_export = last_export.map(Duration::from_millis);
        if settings.traces.is_some() || settings.metrics.is_some() {
            settings.has_contents = reader.has_contents();
            settings.propagates = reader.propagates();
            reader.check_sampler();
        }
        settings.warnings = reader.warnings;
        settings
    }
}

struct SettingsReader<'a> {
    variables: &'a dyn Fn(&str) -> Option<String>,
    warnings: Vec<String>,
}

impl SettingsReader<'_> {
    fn value(&self, name: &str) -> Option<String> {
        (self.variables)(name).map(|value| value.trim().to_owned())
    }

    /// The variable for this signal, or else the one for all, that is set: its name and value.
    fn of_signal(&self, signal: &Signal, general: &'static str) -> Option<(String, String)> {
        let own = general.replace("OTEL_EXPORTER_OTLP_", signal.prefix);
        [own, general.to_owned()].into_iter().find_map(|name| {
            let value = self.value(&name)?;
            Some((name, value))
        })
    }

    /// The collector of a signal, if it is wanted and can be reached.
    fn signal(&mut self, signal: &Signal) -> Option<CollectorEndpoint> {
        let endpoint = self.of_signal(signal, ENDPOINT);
        match self.value(signal.exporter) {
            None if endpoint.as_ref().is_none_or(|(name, _)| name == ENDPOINT && !signal.is_general) => {
                return None;
            }
            None => {}
            Some(exporters) => {
                let (ours, others): (Vec<_>, Vec<_>) = exporters
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty() && *name != "none")
                    .partition(|name| *name == "otlp");
                for other in others {
                    self.warn_of_exporter(signal, other);
                }
                if ours.is_empty() {
                    return None;
                }
            }
        }
        if let Some((name, protocol)) = self.of_signal(signal, PROTOCOL)
            && protocol != HTTP_PROTOBUF
        {
            self.warnings.push(format!(
                "`{name}` is `{protocol}`, which ipybox does not speak: no {} are sent\nhint: set it to \
                 `{HTTP_PROTOBUF}`, and the endpoint to the collector's port for HTTP, by default 4318",
                signal.what
            ));
            return None;
        }
        let url = self.url(signal, endpoint)?;
        let timeout = self.of_signal(signal, TIMEOUT).and_then(|(_, value)| value.parse().ok());
        let timeout = timeout.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
        let certificate = self.of_signal(signal, CERTIFICATE).map(|(_, path)| PathBuf::from(path));
        Some(CollectorEndpoint { url, timeout, certificate })
    }

    fn warn_of_exporter(&mut self, signal: &Signal, other: &str) {
        let Signal { what, exporter, .. } = signal;
        let why = match other {
            "console" | "logging" => "stdout belongs to the protocol",
            _ => "there is no such exporter",
        };
        let warning =
            format!("`{exporter}` names `{other}`, which is ignored: {why}\nhint: `{exporter}=otlp`");
        self.warnings.push(format!("{warning} sends {what} to a collector"));
    }

    fn url(&mut self, signal: &Signal, endpoint: Option<(String, String)>) -> Option<Url> {
        let (name, text) = endpoint.unwrap_or_else(|| (ENDPOINT.to_owned(), DEFAULT_ENDPOINT.to_owned()));
        // That for all signals is a base, the others are whole.
        let whole =
            if name == ENDPOINT { format!("{}/{}", text.trim_end_matches('/'), signal.path) } else { text };
        let url =
            Url::parse(&whole).ok().filter(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        if url.is_none() {
            // Its value may hold a secret.
            self.warnings.push(format!(
                "`{name}` is no URL of a collector: no {} are sent\nhint: it begins with `http://` or `https://`",
                signal.what
            ));
        }
        url
    }

    fn has_contents(&mut self) -> bool {
        let Some(value) = self.value(CAPTURE_CONTENT) else { return false };
        match value.to_ascii_lowercase().as_str() {
            "true" | "span_only" | "span_and_event" => true,
            "false" | "no_content" | "event_only" => false,
            _ => {
                self.warnings.push(format!(
                    "`{CAPTURE_CONTENT}` is `{value}`, which is unknown: spans have no contents\nhint: `true` or \
                     `SPAN_ONLY` adds arguments and results"
                ));
                false
            }
        }
    }

    fn propagates(&mut self) -> bool {
        let Some(value) = self.value(PROPAGATORS) else { return true };
        let names: Vec<&str> = value.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        for name in names.iter().filter(|name| !["tracecontext", "baggage", "none"].contains(name)) {
            self.warnings.push(format!(
                "`{PROPAGATORS}` names `{name}`, which is ignored\nhint: MCP has `tracecontext` alone"
            ));
        }
        names.contains(&"tracecontext")
    }

    fn check_sampler(&mut self) {
        if let Some(sampler) = self.value(SAMPLER)
            && !SAMPLERS.contains(&sampler.as_str())
        {
            let known = SAMPLERS.join("`, `");
            self.warnings.push(format!(
                "`{SAMPLER}` is `{sampler}`, which is unknown: all spans are recorded\nhint: there are `{known}`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> TelemetrySettings {
        TelemetrySettings::read(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name)?;
            Some(found.1.to_owned())
        })
    }

    /// The addresses for spans and metrics.
    fn urls(variables: &[(&str, &str)]) -> (Option<String>, Option<String>) {
        let TelemetrySettings { traces, metrics, warnings, .. } = read(variables);
        assert!(warnings.is_empty(), "{warnings:?}");
        let url = |endpoint: Option<CollectorEndpoint>| endpoint.map(|endpoint| endpoint.url.to_string());
        (url(traces), url(metrics))
    }

    fn some(url: &str) -> Option<String> {
        Some(url.to_owned())
    }

    #[track_caller]
    fn check_warning(variables: &[(&str, &str)], words: &[&str]) {
        let TelemetrySettings { traces, warnings, .. } = read(variables);
        assert_eq!((traces, warnings.len()), (None, 1), "{warnings:?}");
        words.iter().for_each(|words| assert!(warnings[0].contains(words), "{warnings:?}"));
    }

    #[test]
    fn nothing_is_sent_unless_a_variable_asks() {
        assert_eq!(read(&[]), TelemetrySettings::default());
        for variables in [
            &[("OTEL_SERVICE_NAME", "x")][..],
            &[(ENDPOINT, " ")],
            &[("OTEL_TRACES_EXPORTER", "none"), ("OTEL_METRICS_EXPORTER", "none"), (ENDPOINT, "http://c")],
            &[(SDK_DISABLED, "TRUE"), (ENDPOINT, "http://c"), (PROTOCOL, "grpc")],
        ] {
            assert_eq!(urls(variables), (None, None), "{variables:?}");
        }
    }

    #[test]
    fn a_signal_is_sent_to_its_endpoint() {
        let both = (some("http://c:4318/v1/traces"), some("http://c:4318/v1/metrics"));
        assert_eq!(urls(&[(ENDPOINT, "http://c:4318")]), both);
        assert_eq!(urls(&[(ENDPOINT, "http://c:4318/"), (SDK_DISABLED, "false")]), both);
        assert_eq!(
            urls(&[(ENDPOINT, "http://c:4318"), ("OTEL_METRICS_EXPORTER", "none")]),
            (both.0.clone(), None)
        );
        let own = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://t/own"), (ENDPOINT, "http://c/base")];
        assert_eq!(urls(&own), (some("https://t/own"), some("http://c/base/v1/metrics")));
        assert_eq!(urls(&own[..1]), (some("https://t/own"), None));
        let default = some("http://localhost:4318/v1/traces");
        assert_eq!(urls(&[("OTEL_TRACES_EXPORTER", "otlp")]), (default, None));
    }

    #[test]
    fn timeouts_and_certificates_are_those_of_the_signal() {
        let settings = read(&[
            (ENDPOINT, "https://c"),
            (TIMEOUT, "1500"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "20"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "/ca.pem"),
        ]);
        let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
        assert_eq!((traces.timeout.as_millis(), metrics.timeout.as_millis()), (1500, 20));
        assert_eq!((traces.certificate, metrics.certificate), (Some("/ca.pem".into()), None));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let grpc = [("OTEL_TRACES_EXPORTER", "otlp"), (PROTOCOL, "grpc")];
        check_warning(&grpc, &["`OTEL_EXPORTER_OTLP_PROTOCOL` is `grpc`", "http/protobuf", "4318"]);
        check_warning(&[("OTEL_TRACES_EXPORTER", "console")], &["`OTEL_TRACES_EXPORTER`", "stdout"]);
        check_warning(&[("OTEL_TRACES_EXPORTER", "zipkin")], &["`zipkin`", "no such exporter"]);
        let url = [("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "me:secret@c:4318")];
        check_warning(&url, &["`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is no URL"]);
        assert!(!read(&url).warnings[0].contains("secret"));
        let mixed = read(&[("OTEL_TRACES_EXPORTER", "console, otlp")]);
        assert!(mixed.traces.is_some() && mixed.warnings.len() == 1, "{mixed:?}");
        let sampler = read(&[(ENDPOINT, "http://c"), (SAMPLER, "sometimes")]);
        assert!(sampler.warnings[0].contains("`traceidratio`"), "{sampler:?}");
    }

    #[test]
    fn contents_and_propagation_are_chosen() {
        let with = |name: &'static str, value: &'static str| read(&[(ENDPOINT, "http://c"), (name, value)]);
        for (value, expected) in [
            ("true", true),
            ("SPAN_ONLY", true),
            ("false", false),
            ("NO_CONTENT", false),
            ("EVENT_ONLY", false),
        ] {
            assert_eq!(with(CAPTURE_CONTENT, value).has_contents, expected, "{value}");
        }
        let unknown = with(CAPTURE_CONTENT, "yes");
        assert!(!unknown.has_contents && unknown.warnings.len() == 1, "{unknown:?}");
        assert!(read(&[(ENDPOINT, "http://c")]).propagates);
        assert!(with(PROPAGATORS, "tracecontext,baggage").propagates);
        assert!(!with(PROPAGATORS, "none").propagates);
        let foreign = with(PROPAGATORS, "b3");
        assert!(!foreign.propagates && foreign.warnings[0].contains("`b3`"), "{foreign:?}");
    }
}
