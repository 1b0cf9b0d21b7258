//! Allocates job ids, unique for the life of their namespace (rule job-5).
//!
//! A ConfigMap holds the next id. The controller increments it by compare-and-swap, so no id is allocated twice, even
//! if two controllers run. An id is lost if the process ends between allocating and recording it.

use super::MANAGER;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;
use streams_api::names;
use streams_kubernetes::cluster::Cluster;
use streams_kubernetes::error::written;
use streams_kubernetes::{Error, Key};

/// Key of the ConfigMap.
const NEXT: &str = "next";
/// How often the compare-and-swap is tried.
const ATTEMPTS: u32 = 10;

/// Takes the next id, at least `least`: no job has that id or a higher one. It is the next id if a user has deleted the
/// counter.
///
/// # Errors
/// [`Error::Conflict`] if others were faster too often; [`Error::Refused`] if the counter was damaged by hand; failures
/// of the calls.
pub(crate) async fn next<C: Cluster>(cluster: &C, namespace: &str, least: u64) -> Result<u64, Error> {
    let key = Key::new(namespace, names::JOB_IDS);
    for _ in 0..ATTEMPTS {
        let existing = cluster.get::<ConfigMap>(&key).await?;
        let (id, counter) = step(existing.as_ref(), least)?;
        let result = match existing {
            None => cluster.create(namespace, MANAGER, &counter).await,
            Some(_) => cluster.replace(MANAGER, &counter).await,
        };
        match result {
            Ok(_) => return Ok(id),
            // Another process has written, created or deleted the counter.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(written(&counter, error)),
        }
    }
    Err(Error::Conflict { kind: "ConfigMap".to_owned(), name: names::JOB_IDS.to_owned() })
}

/// The id that a counter gives, and the counter afterwards; pure.
fn step(existing: Option<&ConfigMap>, least: u64) -> Result<(u64, ConfigMap), Error> {
    let counted = existing.and_then(|counter| counter.data.as_ref()).and_then(|data| data.get(NEXT));
    let counted = match counted {
        None => 0,
        Some(text) => text.parse().map_err(|_| Error::Refused {
            kind: "ConfigMap".to_owned(),
            name: names::JOB_IDS.to_owned(),
            message: format!("{NEXT} is {text:?} instead of a number; delete the ConfigMap"),
        })?,
    };
    let id = least.max(counted);
    let mut counter = existing.cloned().unwrap_or_else(|| ConfigMap {
        metadata: ObjectMeta { name: Some(names::JOB_IDS.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    });
    counter.data = Some(BTreeMap::from([(NEXT.to_owned(), id.saturating_add(1).to_string())]));
    Ok((id, counter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(next: &str) -> ConfigMap {
        let data = Some(BTreeMap::from([(NEXT.to_owned(), next.to_owned())]));
        let metadata = ObjectMeta { resource_version: Some("7".to_owned()), ..ObjectMeta::default() };
        ConfigMap { metadata, data, ..ConfigMap::default() }
    }

    #[test]
    fn numbers_count_up_and_never_below_those_in_use() {
        // counter, least -> number, counter after it
        let table = [(None, 0, 0, "1"), (None, 5, 5, "6"), (Some("3"), 0, 3, "4"), (Some("3"), 9, 9, "10")];
        for (existing, least, number, after) in table {
            let existing = existing.map(counter);
            let (id, next) = step(existing.as_ref(), least).unwrap();
            assert_eq!((id, next.data.unwrap()[NEXT].as_str()), (number, after));
            let version = existing.and_then(|existing| existing.metadata.resource_version);
            assert_eq!(next.metadata.resource_version, version, "a compare-and-swap");
        }
    }

    #[test]
    fn a_damaged_counter_is_reported() {
        let error = step(Some(&counter("many")), 0).unwrap_err();
        assert!(error.is_permanent() && error.to_string().contains("delete the ConfigMap"), "{error}");
    }
}
