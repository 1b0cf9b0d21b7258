//! The collector that spans are sent to: its address, and how it is connected to (rule name-11).
//!
//! The address is what the variables of OpenTelemetry say. One without a scheme is `https`, as for every program that
//! reads these variables, unless another one says that it is not secured. Who has signed the certificate of a collector
//! with `https` must be known to this system, or be in the file that `SSL_CERT_FILE` names instead.
//!
//! Knows: the exporter of OpenTelemetry. Must not know: spans.

use anyhow::Context as _;
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{
    OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_INSECURE, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_INSECURE, SpanExporter, WithExportConfig, WithTonicConfig,
};
use std::env;

/// Variables with the address. The first one that is there counts.
const ADDRESS: [&str; 2] = [OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT];
/// Variables that say whether an address without a scheme is not secured. The first one that is there counts.
const IS_INSECURE: [&str; 2] = [OTEL_EXPORTER_OTLP_TRACES_INSECURE, OTEL_EXPORTER_OTLP_INSECURE];

/// A collector.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Collector {
    /// The variable that names it.
    variable: &'static str,
    /// Its address, with a scheme.
    address: String,
}

impl Collector {
    /// The collector that the environment names, if it names one.
    pub(super) fn of_environment() -> Option<Self> {
        Self::named_by(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// The same, with the values of variables. One that is empty counts as one that is not there.
    fn named_by(value_of: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let first = |names: [&'static str; 2]| {
            let mut values = names.into_iter().filter_map(|name| Some((name, value_of(name)?)));
            values.find(|(_, value)| !value.is_empty())
        };
        let (variable, address) = first(ADDRESS)?;
        let is_insecure = first(IS_INSECURE).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
        let scheme = if is_insecure { "http" } else { "https" };
        let address = if scheme_of(&address).is_some() { address } else { format!("{scheme}://{address}") };
        Some(Self { variable, address })
    }

    /// Sends spans there. Needs a tokio runtime.
    ///
    /// # Errors
    /// The address is none; or it is `https`, and the system knows no authority.
    pub(super) fn exporter(&self) -> anyhow::Result<SpanExporter> {
        let Self { variable, address } = self;
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(address);
        let is_encrypted = scheme_of(address).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        // By itself the exporter trusts no authority at all.
        let exporter =
            if is_encrypted { exporter.with_tls_config(ClientTlsConfig::new().with_native_roots()) } else { exporter };
        exporter.build().with_context(|| {
            format!(
                "traces cannot be sent to {address}, which {variable} names: http://HOST:PORT is a collector without \
                 TLS, https://HOST:PORT one with it"
            )
        })
    }
}

/// What an address begins with, if that is a scheme: the exporter takes the same for one.
fn scheme_of(address: &str) -> Option<&str> {
    let (scheme, _) = address.split_once("://")?;
    (!scheme.contains(['/', '?', '#'])).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_for_traces_goes_first_and_an_address_without_a_scheme_is_secured() {
        let (of_traces, of_all) = (OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT);
        let (insecure_traces, insecure) = (OTEL_EXPORTER_OTLP_TRACES_INSECURE, OTEL_EXPORTER_OTLP_INSECURE);
        // variables -> the one that names the collector, and its address
        type Named = Option<(&'static str, &'static str)>;
        let table: [(&[(&str, &str)], Named); 10] = [
            (&[], None),
            (&[(of_all, ""), (of_traces, "")], None),
            (&[(insecure, "true")], None),
            (&[(of_all, "http://c:4317")], Some((of_all, "http://c:4317"))),
            (&[(of_all, "http://c:4317"), (of_traces, "https://t:4317")], Some((of_traces, "https://t:4317"))),
            (&[(of_all, "http://c:4317"), (of_traces, "")], Some((of_all, "http://c:4317"))),
            (&[(of_all, "c:4317")], Some((of_all, "https://c:4317"))),
            (&[(of_all, "c:4317"), (insecure, "True")], Some((of_all, "http://c:4317"))),
            (&[(of_all, "c:4317"), (insecure, "true"), (insecure_traces, "false")], Some((of_all, "https://c:4317"))),
            (&[(of_all, "https://c:4317"), (insecure, "true")], Some((of_all, "https://c:4317"))),
        ];
        for (variables, expected) in table {
            let value_of = |name: &str| {
                variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
            };
            let collector = Collector::named_by(value_of);
            let named = collector.as_ref().map(|collector| (collector.variable, collector.address.as_str()));
            assert_eq!(named, expected, "{variables:?}");
        }
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_told_with_its_variable_and_what_to_type() {
        let of = |address: &str| Collector { variable: OTEL_EXPORTER_OTLP_ENDPOINT, address: address.to_owned() };
        of("http://c:4317").exporter().unwrap();
        for address in ["http://", "http://a b:4317", "https://a b:4317"] {
            let words = format!("{:#}", of(address).exporter().unwrap_err());
            for part in [address, OTEL_EXPORTER_OTLP_ENDPOINT, "http://HOST:PORT"] {
                assert!(words.contains(part), "{words}");
            }
        }
    }
}
