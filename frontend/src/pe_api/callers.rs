//! Which pod an address belongs to (rule pe-api-1).
//!
//! Of a namespace that may not be read the mirror shows addresses that others may have by now, or none (rule call-33):
//! its pods take no part.
//!
//! Invariant: an address has the pods that the mirror shows with it, as the first of their addresses or that of another
//! family, and that have not ended; nothing is kept of others.

use crate::mirrors::{Mirrors, addresses_of};
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use streams_kubernetes::Key;
use streams_kubernetes::queue::Owner;
use streams_kubernetes::watch::{Refusals, Watch};
use tokio::sync::watch as latest;

/// The namespace of the pods at an address. `None` if there are no such pods, or some of several namespaces: all such
/// addresses are together like one namespace (rule pe-api-7).
pub(super) type Tenant = Option<Arc<str>>;

/// Whose part of what callers share is taken: whatever namespace they ask about, it is that of their pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) namespace: Tenant,
    pub(super) address: IpAddr,
}

impl Asker {
    /// Whose turn it is: namespaces take turns, and within one its addresses.
    pub(super) fn owner(&self) -> Owner {
        let namespace = self.namespace.clone().unwrap_or_default();
        Owner { namespace, object: self.address.to_string().into() }
    }
}

/// The addresses of pods. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Callers {
    known: Arc<Mutex<Known>>,
    changes: Arc<latest::Sender<u64>>,
    refusals: Refusals,
}

#[derive(Default)]
struct Known {
    /// In order. There is nearly always one, for which a set would take ten times the memory.
    pods: HashMap<IpAddr, Vec<Key>>,
    addresses: BTreeMap<Key, [Option<IpAddr>; 2]>,
}

impl Callers {
    /// Addresses that follow the mirror of pods.
    pub(crate) fn of(mirrors: &Mirrors) -> Self {
        let callers = Self { refusals: mirrors.refusals.clone(), ..Self::default() };
        let (following, pods) = (callers.clone(), mirrors.pods.clone());
        mirrors.pods.subscribe(move |pod: &Pod| following.look_at(&pods, &Key::of(pod)));
        let changes = Arc::clone(&callers.changes);
        mirrors.refusals.subscribe(move |_| changes.send_modify(|number| *number = number.wrapping_add(1)));
        callers
    }

    /// The pods with this address: more than one if they share the network of their node.
    pub(crate) fn pods(&self, address: IpAddr) -> Vec<Key> {
        let known = self.known.lock();
        let pods = known.pods.get(&address.to_canonical()).into_iter().flatten();
        pods.filter(|pod| !self.refusals.contains(&pod.namespace)).cloned().collect()
    }

    /// A namespace that may not be read and has, or had, a pod with this address.
    pub(super) fn unread(&self, address: IpAddr) -> Option<Arc<str>> {
        let known = self.known.lock();
        let mut pods = known.pods.get(&address.to_canonical())?.iter();
        pods.find(|pod| self.refusals.contains(&pod.namespace)).map(|pod| Arc::clone(&pod.namespace))
    }

    /// The namespace of the pods with this address. `None` if there are no such pods, or some of several namespaces.
    pub(crate) fn namespace(&self, address: IpAddr) -> Option<Arc<str>> {
        let known = self.known.lock();
        let namespaces = known.pods.get(&address.to_canonical())?.iter().map(|pod| &pod.namespace);
        let mut namespaces = namespaces.filter(|namespace| !self.refusals.contains(namespace));
        let first = namespaces.next()?;
        namespaces.all(|other| other == first).then(|| Arc::clone(first))
    }

    /// Who asks from this address.
    pub(super) fn asker(&self, address: IpAddr) -> Asker {
        let address = address.to_canonical();
        Asker { namespace: self.namespace(address), address }
    }

    /// A number that is another one whenever an address belongs to other pods.
    pub(crate) fn changes(&self) -> latest::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The mirror is read under the lock, so that the last who looks sees the last state.
    fn look_at(&self, pods: &Watch<Pod>, key: &Key) {
        let mut known = self.known.lock();
        let now = pods.get(key).map(|pod| addresses_of(&pod)).unwrap_or_default();
        let before = known.addresses.get(key).copied().unwrap_or_default();
        if before == now {
            return;
        }
        let key = &pods.own_key(key).unwrap_or_else(|| key.clone());
        for before in before.into_iter().flatten() {
            if let Some(keys) = known.pods.get_mut(&before) {
                keys.retain(|other| other != key);
                if keys.is_empty() {
                    known.pods.remove(&before);
                }
            }
        }
        for now in now.into_iter().flatten() {
            let keys = known.pods.entry(now).or_insert_with(|| Vec::with_capacity(1));
            if let Err(place) = keys.binary_search(key) {
                keys.insert(place, key.clone());
            }
        }
        if now == [None; 2] {
            known.addresses.remove(key);
        } else {
            known.addresses.insert(key.clone(), now);
        }
        drop(known);
        self.changes.send_modify(|number| *number = number.wrapping_add(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use streams_kubernetes::metrics::Metrics;

    fn pod(name: &str, address: &str, phase: &str) -> Pod {
        pod_of("n", name, address, phase)
    }

    fn pod_of(namespace: &str, name: &str, address: &str, phase: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": namespace, "name": name}, "status": {"podIP": address, "phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn an_address_is_of_the_namespace_of_its_pods_and_of_none_if_they_are_of_several() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let callers = Callers::of(&mirrors);
        for (namespace, name, address) in [
            ("n", "a", "10.0.0.1"),
            ("n", "b", "10.0.0.1"),
            ("m", "a", "10.0.0.2"),
            ("n", "c", "10.0.0.3"),
            ("m", "b", "10.0.0.3"),
        ] {
            mirrors.pods.insert(pod_of(namespace, name, address, "Running"));
        }
        // address -> namespace
        let table = [
            ("10.0.0.1", Some("n")),
            ("::ffff:10.0.0.1", Some("n")),
            ("10.0.0.2", Some("m")),
            ("10.0.0.3", None),
            ("10.0.0.4", None),
        ];
        for (address, expected) in table {
            assert_eq!(callers.namespace(address.parse().unwrap()).as_deref(), expected, "{address}");
        }
    }

    #[test]
    fn a_pod_is_at_its_addresses_of_both_families() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let callers = Callers::of(&mirrors);
        let [v4, other_v4, v6] = ["10.0.0.1", "10.0.0.2", "fd00::1"];
        // `status.podIP`, `status.podIPs`, phase -> where the pod is
        let table: [(&str, &[&str], &str, &[&str]); 7] = [
            (v4, &[], "Running", &[v4]),
            (v4, &[v4], "Running", &[v4]),
            (v4, &[v4, v6], "Running", &[v4, v6]),
            (v6, &[v6, other_v4], "Running", &[other_v4, v6]),
            (v4, &[v4, "none"], "Running", &[v4]),
            ("", &[], "Pending", &[]),
            (v4, &[v4, v6], "Succeeded", &[]),
        ];
        for (first, all, phase, expected) in table {
            let all: Vec<_> = all.iter().map(|address| json!({ "ip": address })).collect();
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": "a"},
                "status": {"podIP": first, "podIPs": all, "phase": phase},
            }))
            .unwrap();
            mirrors.pods.insert(pod);
            let is_there = |address: &&str| !callers.pods(address.parse().unwrap()).is_empty();
            let found: Vec<_> = [v4, other_v4, v6].into_iter().filter(is_there).collect();
            assert_eq!(found, expected, "{first} {all:?} {phase}");
        }
        let known = callers.known.lock();
        assert!(known.pods.is_empty() && known.addresses.is_empty());
    }

    #[test]
    fn pods_of_a_namespace_that_may_not_be_read_take_no_part() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let callers = Callers::of(&mirrors);
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        mirrors.pods.insert(pod_of("m", "old", "10.0.0.1", "Running"));
        mirrors.pods.insert(pod_of("n", "new", "10.0.0.1", "Running"));
        let seen = || {
            let pods: Vec<_> = callers.pods(address).iter().map(|pod| pod.name.to_string()).collect();
            (pods.join(" "), callers.namespace(address), callers.unread(address))
        };
        let (m, n): (Arc<str>, Arc<str>) = ("m".into(), "n".into());
        assert_eq!(seen(), ("old new".to_owned(), None, None));
        // Who has the address now asks as if nobody had had it before.
        mirrors.jobs.refuse("m");
        assert_eq!(seen(), ("new".to_owned(), Some(n), Some(m)));
        let mut changes = callers.changes();
        changes.mark_unchanged();
        mirrors.jobs.permit("m");
        assert!(changes.has_changed().unwrap());
        assert_eq!(seen(), ("old new".to_owned(), None, None));
    }

    #[test]
    fn an_address_has_the_pods_that_run_with_it_and_nothing_is_kept_of_others() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let callers = Callers::of(&mirrors);
        let at = |address: &str| -> Vec<String> {
            callers.pods(address.parse().unwrap()).iter().map(|key| key.name.to_string()).collect()
        };
        mirrors.pods.insert(pod("a", "10.0.0.1", "Running"));
        mirrors.pods.insert(pod("b", "10.0.0.1", "Succeeded"));
        mirrors.pods.insert(pod("c", "", "Pending"));
        assert_eq!(
            (at("10.0.0.1"), at("::ffff:10.0.0.1"), at("10.0.0.2")),
            (vec!["a".to_owned()], vec!["a".to_owned()], vec![],)
        );
        mirrors.pods.insert(pod("a", "10.0.0.1", "Failed"));
        mirrors.pods.insert(pod("b", "10.0.0.1", "Running"));
        assert_eq!(at("10.0.0.1"), ["b"]);
        mirrors.pods.insert(pod("b", "10.0.0.3", "Running"));
        assert_eq!((at("10.0.0.1"), at("10.0.0.3")), (vec![], vec!["b".to_owned()]));
        mirrors.pods.remove(&Key::new("n", "b"));
        let known = callers.known.lock();
        assert!(known.pods.is_empty() && known.addresses.is_empty());
    }
}
