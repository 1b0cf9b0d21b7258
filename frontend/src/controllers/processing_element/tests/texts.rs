//! Texts that somebody else has written.

use super::super::counters::Counters;
use super::super::reconciler::PeReconciler;
use crate::controllers::job;
use crate::controllers::known_launches::KnownLaunches;
use crate::controllers::resizing::RollOutTimes;
use crate::controllers::tests::LateMirrors;
use crate::settings::{JobSettings, PodSettings};
use futures::executor::block_on;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::sync::Arc;
use streams_api::{AadlConfigMap, ProcessingElement, ProcessingElementSpec, names};
use streams_kubernetes::cluster::{Cluster as _, Manager};
use streams_kubernetes::leadership::Term;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes_fake::Server;

#[test]
fn no_pod_is_made_from_a_text_that_somebody_else_has_written() {
    let meta = |name: &str| ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some("n".to_owned()),
        labels: Some(names::pe_labels("flow", 3)),
        ..ObjectMeta::default()
    };
    let config_map = AadlConfigMap { name: "flow-3-text".to_owned(), compressed: false };
    let spec = ProcessingElementSpec { job_name: "flow".to_owned(), id: 3, config_map, ..Default::default() };
    let mut pe = ProcessingElement::new("flow-3", spec);
    pe.metadata = meta("flow-3");
    // who has written the text -> why there is no pod
    let table = [
        (None, Some("TextMissing")),
        (Some(job::MANAGER), None),
        (Some(Manager("kubectl-replace")), Some("ChangedByOthers")),
    ];
    for (writer, expected) in table {
        let server = Server::new();
        if let Some(writer) = writer {
            let data = Some(BTreeMap::from([("aadl.xml".to_owned(), "<pe/>".to_owned())]));
            let text = ConfigMap { metadata: meta("flow-3-text"), data, immutable: Some(true), ..Default::default() };
            block_on(server.connect().create("n", writer, &text)).unwrap();
        }
        let (feeds, metrics) = (LateMirrors::of(&server), Metrics::new("test"));
        let reconciler = PeReconciler::new(
            server.connect(),
            &feeds.mirrors,
            PodSettings::default(),
            RollOutTimes::of(&JobSettings::default()),
            Counters::new(&metrics),
            Arc::default(),
            KnownLaunches::of(&feeds.mirrors.processing_elements, Term::endless()),
        );
        let obstacle = reconciler.template(&pe, None, None).err().map(|obstacle| obstacle.reason);
        assert_eq!(obstacle, expected, "{writer:?}");
    }
}
