//! Computes a PE's share of the resources of a job, and says which resources no cluster can use.
//!
//! Requests and limits of the job alike are divided by the number of PEs: thousandths of CPU, whole pages of huge
//! pages, whole units of everything else, rounded down, never to 0 (rule pod-4). What can be used divides into what can
//! be used.
//!
//! Knows: quantities of Kubernetes. Must not know: jobs, PEs, where a share is used.

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// How the names of huge pages begin; the size of a page follows.
const HUGE_PAGES: &str = "hugepages-";
/// Resources of every container that have no domain and no size.
const PLAIN: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// Longest domain of whoever provides a device: with `requests.` before it, as quotas have it, it is a subdomain.
const DOMAIN_MAX: usize = 244;
/// Longest name of a device in its domain.
const DEVICE_MAX: usize = 63;
/// How no domain of a device begins: quotas call the requests of other devices so.
const OF_QUOTAS: &str = "requests.";

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: {text:?} is no quantity")]
pub(crate) struct Malformed {
    resource: String,
    text: String,
}

/// Why the API server would refuse every pod with these resources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    /// A quantity cannot be read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A name that no resource of a container has.
    #[error("{resource} is no resource that a pod can have")]
    Unknown { resource: String },
    /// Part of a device, or of a huge page.
    #[error("{resource}: {text:?} is {}", not_whole(.resource))]
    Broken { resource: String, text: String },
    /// More is requested than may be used.
    #[error("{resource}: the request of {request:?} is greater than the limit of {limit:?}")]
    BeyondLimit { resource: String, request: String, limit: String },
    /// What nobody can share is requested without a limit, or with another one.
    #[error("{resource}: a request needs a limit that is equal to it")]
    WithoutEqualLimit { resource: String },
    /// Huge pages alone.
    #[error("huge pages need cpu or memory beside them")]
    NothingButHugePages,
}

fn not_whole(resource: &str) -> &'static str {
    if resource.starts_with(HUGE_PAGES) { "no number of whole pages" } else { "no whole number" }
}

/// The share of one of `count` PEs.
///
/// # Errors
/// A quantity is malformed or out of range. The error names its resource.
pub(crate) fn share(whole: &ResourceRequirements, count: NonZeroU32) -> Result<ResourceRequirements, Malformed> {
    let divide_all = |quantities: &Option<BTreeMap<String, Quantity>>| {
        let divided =
            quantities.iter().flatten().map(|(name, quantity)| Ok((name.clone(), divide(name, quantity, count)?)));
        let divided: BTreeMap<_, _> = divided.collect::<Result<_, Malformed>>()?;
        Ok((!divided.is_empty()).then_some(divided))
    };
    Ok(ResourceRequirements {
        claims: whole.claims.clone(),
        limits: divide_all(&whole.limits)?,
        requests: divide_all(&whole.requests)?,
    })
}

/// Checks that a pod can have these resources, as far as that follows from them (rule job-38). The schema checks the
/// same, but not of what was stored before it did, and not how long names are.
///
/// # Errors
/// The API server would refuse the pod, whatever else it has. The error names the resource.
pub(crate) fn check(resources: &ResourceRequirements) -> Result<(), Unusable> {
    let none = BTreeMap::new();
    let limits = resources.limits.as_ref().unwrap_or(&none);
    let requests = resources.requests.as_ref().unwrap_or(&none);
    for (resource, quantity) in limits.iter().chain(requests) {
        if !can_be_had(resource) {
            return Err(Unusable::Unknown { resource: resource.clone() });
        }
        let milli = read(resource, quantity)?;
        let unit = if is_shared(resource) { 1 } else { page_size(resource).unwrap_or(1).saturating_mul(1000) };
        if !milli.is_multiple_of(unit) {
            return Err(Unusable::Broken { resource: resource.clone(), text: quantity.0.clone() });
        }
    }
    for (resource, request) in requests {
        let (resource, limit) = (resource.clone(), limits.get(resource));
        let requested = read(&resource, request)?;
        match limit.map(|limit| read(&resource, limit)).transpose()? {
            Some(allowed) if requested == allowed => {}
            None if is_shared(&resource) => {}
            _ if !is_shared(&resource) => return Err(Unusable::WithoutEqualLimit { resource }),
            Some(allowed) if requested > allowed => {
                let (request, limit) = (request.0.clone(), limit.map(|limit| limit.0.clone()).unwrap_or_default());
                return Err(Unusable::BeyondLimit { resource, request, limit });
            }
            _ => {}
        }
    }
    let has = |is: fn(&str) -> bool| limits.keys().chain(requests.keys()).any(|name| is(name));
    if has(|name| name.starts_with(HUGE_PAGES)) && !has(|name| matches!(name, "cpu" | "memory")) {
        return Err(Unusable::NothingButHugePages);
    }
    Ok(())
}

/// Whether there can be a resource of this name.
fn can_be_had(resource: &str) -> bool {
    let Some((domain, device)) = resource.split_once('/') else {
        return PLAIN.contains(&resource) || resource.starts_with(HUGE_PAGES);
    };
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_alphanumeric)
            && part.ends_with(is_alphanumeric)
            && part.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    let at_the_end = |c: char| c.is_ascii_alphanumeric();
    domain.len() <= DOMAIN_MAX
        && !domain.starts_with(OF_QUOTAS)
        && domain.split('.').all(is_part)
        && device.len() <= DEVICE_MAX
        && device.starts_with(at_the_end)
        && device.ends_with(at_the_end)
        && device.chars().all(|c| at_the_end(c) || matches!(c, '-' | '_' | '.'))
}

/// Whether containers of a node may share the resource, so that more than there is can be promised: not devices, which
/// have the domain of whoever provides them, nor huge pages.
fn is_shared(resource: &str) -> bool {
    !resource.contains('/') && !resource.starts_with(HUGE_PAGES)
}

/// Bytes of a huge page; `None` if the resource is none, or its name does not say.
fn page_size(resource: &str) -> Option<u128> {
    let size = parse_milli(resource.strip_prefix(HUGE_PAGES)?)? / 1000;
    (size > 0).then_some(size)
}

fn read(resource: &str, quantity: &Quantity) -> Result<u128, Malformed> {
    let malformed = || Malformed { resource: resource.to_owned(), text: quantity.0.clone() };
    parse_milli(&quantity.0).ok_or_else(malformed)
}

/// The resources without what says nothing; `None` if nothing is left (rule pod-4).
///
/// An object that is applied must not have empty maps: where it had values before, the API server takes an empty map
/// for `null` and refuses it.
pub(crate) fn saying_something(resources: &ResourceRequirements) -> Option<ResourceRequirements> {
    let filled = |quantities: &Option<BTreeMap<String, Quantity>>| {
        quantities.clone().filter(|quantities| !quantities.is_empty())
    };
    let (limits, requests) = (filled(&resources.limits), filled(&resources.requests));
    let is_empty = limits.is_none() && requests.is_none();
    (!is_empty).then(|| ResourceRequirements { limits, requests, claims: resources.claims.clone() })
}

fn divide(resource: &str, quantity: &Quantity, count: NonZeroU32) -> Result<Quantity, Malformed> {
    let milli = read(resource, quantity)?;
    if milli == 0 {
        return Ok(quantity.clone());
    }
    let count = u128::from(count.get());
    if has_fractions(resource) {
        let share = (milli / count).max(1);
        return Ok(Quantity(if share % 1000 == 0 { (share / 1000).to_string() } else { format!("{share}m") }));
    }
    let unit = page_size(resource).unwrap_or(1);
    let share = (milli / 1000 / unit / count).max(1).saturating_mul(unit);
    Ok(Quantity(in_binary_units(share)))
}

/// Whether a resource can be had in thousandths: CPU. Bytes, devices and huge pages only come whole.
fn has_fractions(resource: &str) -> bool {
    resource == "cpu"
}

/// The shortest exact form in powers of 1024.
fn in_binary_units(value: u128) -> String {
    let units = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut value = value;
    let mut unit = 0;
    while value.is_multiple_of(1024) && value > 0 && unit + 1 < units.len() {
        value /= 1024;
        unit += 1;
    }
    format!("{value}{}", units.get(unit).copied().unwrap_or_default())
}

/// Reads a non-negative quantity as thousandths, rounded up like the API server does with what is finer (rule pod-5).
///
/// `None`: not a quantity, negative, or beyond 2^63.
pub(crate) fn parse_milli(text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 40 {
        return None;
    }
    // value = digits * numerator / denominator, in thousandths
    let (numerator, mut denominator): (u128, u128) = match suffix {
        "n" => (1000, 1_000_000_000),
        "u" => (1000, 1_000_000),
        "m" => (1000, 1000),
        "" => (1000, 1),
        "k" => (1_000_000, 1),
        "M" => (1_000_000_000, 1),
        "G" => (1_000_000_000_000, 1),
        "T" => (1_000_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000_000, 1),
        "Ki" => (1000 << 10, 1),
        "Mi" => (1000 << 20, 1),
        "Gi" => (1000 << 30, 1),
        "Ti" => (1000 << 40, 1),
        "Pi" => (1000 << 50, 1),
        "Ei" => (1000 << 60, 1),
        exponent => {
            let exponent: i32 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10_u128.checked_pow(exponent.unsigned_abs())?;
            if exponent < 0 { (1000, power) } else { (power.checked_mul(1000)?, 1) }
        }
    };
    // Trailing zeros carry nothing but would overflow.
    let fraction = fraction.trim_end_matches('0');
    denominator = denominator.checked_mul(10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
    let digits: u128 = match format!("{whole}{fraction}").as_str() {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    let milli = digits.checked_mul(numerator)?.div_ceil(denominator);
    (milli <= (1_u128 << 63) * 1000).then_some(milli)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    #[test]
    fn quantities_are_divided_rounded_down_and_never_to_zero() {
        let table = [
            ("cpu", "16.0", 4, "4"),
            ("cpu", "0.4", 4, "100m"),
            ("cpu", "1", 3, "333m"),
            ("cpu", "100m", 3, "33m"),
            ("cpu", "1", 3000, "1m"),
            ("cpu", "1500m", 1, "1500m"),
            ("cpu", "2e3", 2, "1000"),
            ("memory", "64Gi", 4, "16Gi"),
            ("memory", "400Mi", 4, "100Mi"),
            ("memory", "128Mi", 7, "19173961"),
            ("memory", "1k", 3, "333"),
            ("memory", "1", 3, "1"),
            ("memory", "0", 3, "0"),
            ("memory", "1.5Gi", 2, "768Mi"),
            ("ephemeral-storage", "3Ki", 3, "1Ki"),
            ("nvidia.com/gpu", "8", 3, "2"),
            ("nvidia.com/gpu", "2", 3, "1"),
            ("hugepages-2Mi", "10Mi", 3, "2Mi"),
            ("hugepages-2Mi", "64Mi", 3, "20Mi"),
            ("hugepages-1Gi", "2Gi", 3, "1Gi"),
            ("hugepages-1Gi", "4Gi", 1, "4Gi"),
            ("hugepages-2Mi", "0", 3, "0"),
            ("hugepages-many", "10", 3, "3"),
        ];
        for (resource, whole, n, expected) in table {
            let actual = divide(resource, &Quantity(whole.to_owned()), count(n)).unwrap();
            assert_eq!(actual.0, expected, "{resource} {whole} / {n}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_named() {
        for text in ["", "-1", "1.2.3", "1x", "Ki", ".", "1e", "1e99", "99999999999999999999Ei", "1 Gi", "é"] {
            let error = divide("memory", &Quantity(text.to_owned()), count(2)).unwrap_err();
            assert_eq!(error.to_string(), format!("memory: {text:?} is no quantity"));
        }
    }

    #[test]
    fn what_no_pod_can_have_is_named() {
        // resources -> what is said
        let table = [
            (r#"{}"#, None),
            (r#"{"limits": {"cpu": "1500m", "memory": "100m"}, "requests": {"cpu": "1.5", "memory": "50m"}}"#, None),
            (r#"{"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}"#, None),
            (r#"{"limits": {"nvidia.com/gpu": "2"}}"#, None),
            (r#"{"limits": {"nvidia.com/gpu": "2000m"}, "requests": {"nvidia.com/gpu": "2"}}"#, None),
            (r#"{"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"memory": "1Gi", "hugepages-2Mi": "4096Ki"}}"#, None),
            (r#"{"limits": {"cpu": "a lot"}}"#, Some(r#"cpu: "a lot" is no quantity"#)),
            (r#"{"limits": {"nvidia.com/gpu": "500m"}}"#, Some(r#"nvidia.com/gpu: "500m" is no whole number"#)),
            (
                r#"{"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}"#,
                Some(r#"hugepages-2Mi: "3Mi" is no number of whole pages"#),
            ),
            (
                r#"{"limits": {"cpu": "1"}, "requests": {"cpu": "1001m"}}"#,
                Some(r#"cpu: the request of "1001m" is greater than the limit of "1""#),
            ),
            (
                r#"{"requests": {"nvidia.com/gpu": "1"}}"#,
                Some("nvidia.com/gpu: a request needs a limit that is equal to it"),
            ),
            (
                r#"{"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "1"}}"#,
                Some("nvidia.com/gpu: a request needs a limit that is equal to it"),
            ),
            (
                r#"{"requests": {"memory": "1Gi", "hugepages-2Mi": "2Mi"}}"#,
                Some("hugepages-2Mi: a request needs a limit that is equal to it"),
            ),
            (r#"{"limits": {"hugepages-2Mi": "2Mi"}}"#, Some("huge pages need cpu or memory beside them")),
        ];
        for (resources, expected) in table {
            let said = check(&serde_json::from_str(resources).unwrap()).err().map(|error| error.to_string());
            assert_eq!(said.as_deref(), expected, "{resources}");
        }
    }

    #[test]
    fn names_are_those_that_a_container_can_have() {
        let (longest, domain) = ("d".repeat(63), format!("{}.com", "x".repeat(240)));
        // name -> whether a pod can have it
        let table = [
            ("cpu".to_owned(), true),
            ("ephemeral-storage".to_owned(), true),
            ("hugepages-2Mi".to_owned(), true),
            ("nvidia.com/gpu".to_owned(), true),
            ("example.com/Device_2.x".to_owned(), true),
            (format!("example.com/{longest}"), true),
            (format!("example.com/{longest}d"), false),
            (format!("{domain}/d"), true),
            (format!("x{domain}/d"), false),
            ("requests.example.com/gpu".to_owned(), false),
            ("my.requests.example.com/gpu".to_owned(), true),
            ("gpu".to_owned(), false),
            (String::new(), false),
            ("example.com/".to_owned(), false),
            ("/gpu".to_owned(), false),
            ("Example.com/gpu".to_owned(), false),
            ("example..com/gpu".to_owned(), false),
            ("example.com/-gpu".to_owned(), false),
            ("example.com/a/b".to_owned(), false),
        ];
        for (name, expected) in table {
            let quantities = || Some(BTreeMap::from([(name.clone(), Quantity("2Mi".to_owned()))]));
            let mut resources = ResourceRequirements {
                limits: quantities(),
                requests: quantities(),
                ..ResourceRequirements::default()
            };
            let cpu = ("cpu".to_owned(), Quantity("2Mi".to_owned()));
            resources.limits.get_or_insert_default().extend([cpu]);
            let said = check(&resources).err().map(|error| error.to_string());
            assert_eq!(said, (!expected).then(|| format!("{name} is no resource that a pod can have")));
        }
    }

    #[test]
    fn what_can_be_used_divides_into_what_can_be_used() {
        let whole = r#"{
            "limits": {"cpu": "1", "nvidia.com/gpu": "5", "hugepages-2Mi": "10Mi", "hugepages-1Gi": "0"},
            "requests": {"cpu": "900m", "nvidia.com/gpu": "5000m", "hugepages-2Mi": "10240Ki"}
        }"#;
        let whole = serde_json::from_str(whole).unwrap();
        for n in 1..12 {
            assert_eq!(check(&share(&whole, count(n)).unwrap()), Ok(()), "{n}");
        }
    }

    #[test]
    fn requests_and_limits_are_divided_alike_and_missing_ones_stay_missing() {
        let quantities = |cpu: &str| Some(BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]));
        let whole = ResourceRequirements { requests: quantities("3"), ..ResourceRequirements::default() };
        let expected = ResourceRequirements { requests: quantities("1500m"), ..ResourceRequirements::default() };
        assert_eq!(share(&whole, count(2)).unwrap(), expected);
        let whole = ResourceRequirements { limits: quantities("4"), requests: quantities("2"), claims: None };
        let expected = ResourceRequirements { limits: quantities("2"), requests: quantities("1"), claims: None };
        assert_eq!(share(&whole, count(2)).unwrap(), expected);
    }

    #[test]
    fn what_says_nothing_is_left_out() {
        let table = [
            (r#"{}"#, None),
            (r#"{"limits": {}, "requests": {}}"#, None),
            (r#"{"limits": {}, "requests": {"cpu": "1"}}"#, Some(r#"{"requests":{"cpu":"1"}}"#)),
        ];
        for (resources, expected) in table {
            let said = saying_something(&serde_json::from_str(resources).unwrap());
            let said = said.map(|said| serde_json::to_string(&said).unwrap());
            assert_eq!(said.as_deref(), expected, "{resources}");
        }
    }

    proptest! {
        #[test]
        fn shares_fit_the_whole(milli in 1_u64..10_000_000, n in 1_u32..500) {
            let text = divide("cpu", &Quantity(format!("{milli}m")), count(n)).unwrap().0;
            let share = parse_milli(&text).unwrap();
            prop_assert!(share >= 1);
            prop_assert!(share == 1 || share * u128::from(n) <= u128::from(milli));
            prop_assert!((share + 1) * u128::from(n) > u128::from(milli));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = parse_milli(&text);
        }
    }
}
