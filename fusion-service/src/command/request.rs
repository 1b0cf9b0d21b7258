//! Reads `request.json` and `input.json` (rules service-20 and service-24).
//!
//! A file that does not have the form is a failure of the command. Values that are wrong in themselves, such as a width
//! of 0, are left to the compiler.
//!
//! Knows: the form of the files, bounds of their texts. Must not know: what a request comes to.

use super::CommandFailure;
use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use streams_compiler::error::{Error, excerpt};
use streams_compiler::plan::{FusionOption, Replay, Request};
use streams_compiler::topology::{ChannelCount, Configuration};

/// Bytes of a file.
const MOST: u64 = 64 << 20;
/// Bytes of one text.
const TEXT: usize = 1 << 20;
/// Characters of a job's name.
const NAME: std::ops::RangeInclusive<usize> = 1..=253;

/// A request with its resizes.
pub(super) struct RequestFile {
    /// The request; an error if its configuration is wrong.
    pub(super) request: Result<Request, Error>,
    /// The request without the configuration.
    pub(super) unconfigured: Request,
    /// Pattern of a region, width.
    pub(super) resizes: Vec<(String, i128)>,
}

impl RequestFile {
    pub(super) fn read(path: &Path) -> Result<Self, CommandFailure> {
        let form: RequestForm = read(path)?;
        let RequestForm { job_name, job_id, fusion, submission_time_values, config, .. } = form;
        let properties: BTreeMap<String, String> = texts(config);
        let unconfigured = Request {
            job_name: job_name.0,
            job_id,
            fusion: fusion.0,
            submission_values: texts(submission_time_values),
            widths: form.parallel_regions.widths(),
            channel_counts: form.channel_counts.0.into_iter().map(|(region, count)| (region.0, count.into())).collect(),
            ..Request::default()
        };
        Ok(Self {
            request: Configuration::read(&properties)
                .map(|configuration| Request { configuration, ..unconfigured.clone() }),
            unconfigured,
            resizes: form.resizes.into_iter().map(|resize| (resize.region.0, resize.width.0)).collect(),
        })
    }
}

/// Reads `input.json`.
pub(super) fn replay(path: &Path) -> Result<Replay, CommandFailure> {
    let ReplayForm { region, prior_widths, current_widths, previous_pes } = read(path)?;
    let mut previous_elements = BTreeMap::new();
    for (id, operators) in previous_pes.0 {
        let decimal = id.0.bytes().all(|byte| byte.is_ascii_digit());
        let Some(id) = id.0.parse::<u64>().ok().filter(|_| decimal) else {
            return Err(CommandFailure::at(path, format!("previousPes: \"{}\" is no PE id", excerpt(&id.0))));
        };
        let operators = operators.into_iter().map(|name| name.0).collect();
        if previous_elements.insert(id, operators).is_some() {
            return Err(CommandFailure::at(path, format!("previousPes: PE {id} is there twice")));
        }
    }
    Ok(Replay {
        region: region.0,
        prior_widths: prior_widths.widths(),
        current_widths: current_widths.widths(),
        previous_elements,
    })
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, CommandFailure> {
    let unreadable = |error: std::io::Error| CommandFailure::at(path, error);
    let mut bytes = Vec::new();
    File::open(path).map_err(unreadable)?.take(MOST + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MOST {
        return Err(CommandFailure::at(path, format!("longer than {MOST} bytes")));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| CommandFailure::new(format_args!("{}:{}", path.display(), malformed(&error))))
}

/// `line:column: what`
fn malformed(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    format!("{}:{}: {}", error.line(), error.column(), excerpt(what))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestForm {
    job_name: JobName,
    job_id: u64,
    fusion: FusionForm,
    #[serde(default)]
    submission_time_values: Object<BoundedText>,
    #[serde(default)]
    config: Object<BoundedText>,
    #[serde(default)]
    parallel_regions: Object<Integer>,
    #[serde(default)]
    channel_counts: Object<CountForm>,
    #[serde(default)]
    resizes: Vec<ResizeForm>,
}

/// Whether operators of a region ask for its number of channels.
#[derive(Deserialize)]
enum CountForm {
    Observed,
    Ignored,
}

impl From<CountForm> for ChannelCount {
    fn from(form: CountForm) -> Self {
        match form {
            CountForm::Observed => Self::Observed,
            CountForm::Ignored => Self::Ignored,
        }
    }
}

#[derive(Deserialize)]
struct ResizeForm {
    region: BoundedText,
    width: Integer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplayForm {
    region: BoundedText,
    prior_widths: Object<Integer>,
    current_widths: Object<Integer>,
    previous_pes: Object<Vec<BoundedText>>,
}

fn texts(object: Object<BoundedText>) -> BTreeMap<String, String> {
    object.0.into_iter().map(|(key, text)| (key.0, text.0)).collect()
}

impl Object<Integer> {
    fn widths(self) -> Vec<(String, i128)> {
        self.0.into_iter().map(|(key, width)| (key.0, width.0)).collect()
    }
}

/// An object, in the order of the file.
struct Object<T>(Vec<(BoundedText, T)>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Object(entries))
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData))
    }
}

/// A text of bounded length.
struct BoundedText(String);

impl<'de> Deserialize<'de> for BoundedText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > TEXT {
            return Err(de::Error::custom(format!("a text is longer than {TEXT} bytes")));
        }
        Ok(Self(text))
    }
}

/// Name of a job.
struct JobName(String);

impl<'de> Deserialize<'de> for JobName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let BoundedText(name) = BoundedText::deserialize(deserializer)?;
        if !NAME.contains(&name.chars().count()) {
            return Err(de::Error::custom("jobName does not have 1 to 253 characters"));
        }
        Ok(Self(name))
    }
}

/// An integer of up to 64 bits, with or without sign.
struct Integer(i128);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Integer;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an integer of up to 64 bits")
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Integer, E> {
                Ok(Integer(number.into()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Integer, E> {
                Ok(Integer(number.into()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Integer, E> {
                // `-0` is an integer, but arrives as a float.
                if number == 0.0 && number.is_sign_negative() {
                    return Ok(Integer(0));
                }
                Err(E::invalid_type(de::Unexpected::Float(number), &self))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

/// `"legacy"` or `{"manual": N}`.
struct FusionForm(FusionOption);

impl<'de> Deserialize<'de> for FusionForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Option;
        impl<'de> Visitor<'de> for Option {
            type Value = FusionForm;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"legacy\" or {\"manual\": N}")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<FusionForm, E> {
                if word == "legacy" {
                    return Ok(FusionForm(FusionOption::Legacy));
                }
                Err(E::custom(format!("fusion \"{}\" is unknown", excerpt(word))))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FusionForm, A::Error> {
                let mut manual = None;
                while let Some(BoundedText(key)) = map.next_key()? {
                    if key == "manual" {
                        manual = Some(map.next_value::<Integer>()?.0);
                    } else {
                        map.next_value::<de::IgnoredAny>()?;
                    }
                }
                let count = manual.ok_or_else(|| de::Error::missing_field("manual"))?;
                Ok(FusionForm(FusionOption::Manual(count)))
            }
        }
        deserializer.deserialize_any(Option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RequestForm, String> {
        serde_json::from_str(text).map_err(|error| malformed(&error))
    }

    #[test]
    fn a_request_has_defaults_and_ignores_what_it_does_not_know() {
        let form = parse(r#"{"jobName":"j","jobId":18446744073709551615,"fusion":{"manual":-3,"x":[1]},"other":{}}"#);
        let form = form.unwrap();
        assert_eq!(form.job_id, u64::MAX);
        assert_eq!(form.fusion.0, FusionOption::Manual(-3));
        assert!(form.resizes.is_empty() && form.config.0.is_empty());
    }

    #[test]
    fn widths_keep_their_order_and_may_be_wrong() {
        let text = r#"{"jobName":"j","jobId":0,"fusion":"legacy",
            "parallelRegions":{"b":0,"a":18446744073709551615,"*":-9223372036854775808},"resizes":[{"region":"a","width":-1}]}"#;
        let form = parse(text).unwrap();
        let widths = [("b", 0), ("a", i128::from(u64::MAX)), ("*", i128::from(i64::MIN))];
        assert_eq!(form.parallel_regions.widths(), widths.map(|(name, width)| (name.to_owned(), width)));
        assert_eq!(form.resizes[0].width.0, -1);
    }

    #[test]
    fn what_has_another_form_is_refused_with_its_place() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"jobName":"","jobId":0,"fusion":"legacy"}"#,
            r#"{"jobName":"j","jobId":-1,"fusion":"legacy"}"#,
            r#"{"jobName":"j","jobId":1.5,"fusion":"legacy"}"#,
            r#"{"jobName":"j","jobId":18446744073709551616,"fusion":"legacy"}"#,
            r#"{"jobName":"j","jobId":1,"fusion":"automatic"}"#,
            r#"{"jobName":"j","jobId":1,"fusion":{}}"#,
            r#"{"jobName":"j","jobId":1,"fusion":{"manual":"3"}}"#,
            r#"{"jobName":"j","jobId":1,"fusion":"legacy","config":{"tracing":1}}"#,
            r#"{"jobName":"j","jobId":1,"fusion":"legacy","resizes":[{"region":"a"}]}"#,
            r#"{"jobName":"j","jobId":1,"fusion":"legacy","parallelRegions":{"a":1e3}}"#,
        ] {
            let Err(message) = parse(text) else { panic!("accepted {text}") };
            assert!(message.contains(':') && !message.contains('\n'), "{message}");
        }
    }
}
