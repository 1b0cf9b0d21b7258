//! The list of redis servers that a job keeps its checkpoints in (rule job-46): in which order they stand in it, and
//! whether it is what an option asks for.
//!
//! Pure. Knows: the form of the list. Must not know: how servers are found, what becomes of an option that is refused.

use serde_json::Value;
use sha2::{Digest, Sha256};
use streams_api::RedisCheckpoints;

/// Port of redis servers.
pub(crate) const PORT: u16 = 6379;

/// Brings hosts that are sorted by name into the order of the list. `job_uid` makes the random order of a job that
/// wants one: the same job gets the same order.
pub(crate) fn arrange(hosts: &mut [String], wanted: &RedisCheckpoints, job_uid: &str) {
    if wanted.shuffle {
        hosts.sort_by_cached_key(|host| rank(job_uid, host));
    }
}

/// Whether this list, which was made at the submission of the job with this uid, is what the option asks for. One of
/// another form is believed to be.
pub(crate) fn is_list_of(list: &str, wanted: &RedisCheckpoints, job_uid: &str) -> bool {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    let groups: &[Value] = list["replicaGroups"].as_array().map_or(&[], Vec::as_slice);
    let Some(first) = groups.first() else { return true };
    let property = wanted.restricted_property.as_ref().map(|name| format!(":{name}")).unwrap_or_default();
    let suffix = format!(":{PORT}{property}");
    let servers = groups.iter().flat_map(|group| group["servers"].as_array().into_iter().flatten());
    let hosts: Option<Vec<&str>> = servers.map(|server| server.as_str()?.strip_suffix(suffix.as_str())).collect();
    list["replicas"] == wanted.replica_count
        && list["shards"] == wanted.shard_count
        && first["description"] == format!("{}#0", wanted.service)
        && hosts.is_some_and(|hosts| is_arranged(&hosts, wanted, job_uid))
}

fn is_arranged(hosts: &[&str], wanted: &RedisCheckpoints, job_uid: &str) -> bool {
    if wanted.shuffle { hosts.is_sorted_by_key(|host| rank(job_uid, host)) } else { hosts.is_sorted() }
}

/// Where a host stands in the random order of a job.
fn rank(job_uid: &str, host: &str) -> Vec<u8> {
    Sha256::digest(format!("{job_uid}/{host}")).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn wanted(shuffle: bool) -> RedisCheckpoints {
        RedisCheckpoints {
            replica_count: 1,
            shard_count: 9,
            service: "r".to_owned(),
            shuffle,
            ..RedisCheckpoints::default()
        }
    }

    fn list(wanted: &RedisCheckpoints, job_uid: &str) -> String {
        let mut hosts: Vec<String> = (0..9).map(|number| format!("r-{number}.r.n.svc")).collect();
        arrange(&mut hosts, wanted, job_uid);
        let servers: Vec<String> = hosts.iter().map(|host| format!("{host}:{PORT}")).collect();
        let group = json!({"servers": servers, "description": "r#0"});
        json!({"replicas": 1, "shards": 9, "replicaGroups": [group]}).to_string()
    }

    #[test]
    fn a_list_is_of_an_option_that_asks_for_its_order() {
        // order at the submission, order that is asked for -> whether the list is that
        for (submitted, asked, expected) in
            [(false, false, true), (true, true, true), (false, true, false), (true, false, false)]
        {
            let list = list(&wanted(submitted), "uid");
            assert_eq!(is_list_of(&list, &wanted(asked), "uid"), expected, "{list} {asked}");
        }
        assert!(!is_list_of(&list(&wanted(true), "uid"), &wanted(true), "another"));
    }

    #[test]
    fn servers_with_another_property_are_others() {
        let list = list(&wanted(false), "uid");
        let with_property = RedisCheckpoints { restricted_property: Some("p".to_owned()), ..wanted(false) };
        assert!(!is_list_of(&list, &with_property, "uid"));
        let of_all = list.replace(":6379", ":6379:p");
        assert!(is_list_of(&of_all, &with_property, "uid") && !is_list_of(&of_all, &wanted(false), "uid"));
    }

    #[test]
    fn a_list_of_another_form_is_believed() {
        for list in ["", "{}", "[]", "{\"replicaGroups\": []}"] {
            assert!(is_list_of(list, &wanted(true), "uid"), "{list}");
        }
    }
}
