//! What the tests of all controllers share.

use super::{each, end_in_time};
use crate::controllers::reconciler::{Next, Reconciler};
use crate::mirrors::{Mirrors, of_streams, trim};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::core::ObjectMeta;
use serde_json::json;
use std::future::pending;
use std::time::Duration;
use streams_api::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, Resize};
use streams_kubernetes::cluster::{Cluster, Manager};
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::queue::{BackOff, Queue, Sharing};
use streams_kubernetes::watch::{ConfigMapMeta, trimmed};
use streams_kubernetes::writer::Writer;
use streams_kubernetes::{Error, Key};
use streams_kubernetes_fake::{Mirror, Server};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The mirrors of one process. They receive changes only when a test delivers them.
pub(crate) struct LateMirrors {
    pub(crate) mirrors: Mirrors,
    pub(crate) jobs: Mirror<Job>,
    pub(crate) processing_elements: Mirror<ProcessingElement>,
    pub(crate) parallel_regions: Mirror<ParallelRegion>,
    pub(crate) resizes: Mirror<Resize>,
    pub(crate) host_pools: Mirror<HostPool>,
    pub(crate) exports: Mirror<Export>,
    pub(crate) imports: Mirror<Import>,
    pub(crate) consistent_regions: Mirror<ConsistentRegion>,
    pub(crate) pods: Mirror<Pod>,
    pub(crate) services: Mirror<Service>,
    pub(crate) config_maps: Mirror<ConfigMapMeta>,
}

impl LateMirrors {
    /// Mirrors that show the present objects of the server.
    pub(crate) fn of(server: &Server) -> Self {
        Self::fill(server, Mirrors::new(&Metrics::new("test")))
    }

    /// Fills these mirrors. A controller may have subscribed to them before.
    pub(crate) fn fill(server: &Server, mirrors: Mirrors) -> Self {
        let of_streams = of_streams();
        let selector = Some(of_streams.as_str());
        Self {
            jobs: Mirror::new(server, &mirrors.jobs, trim::job),
            processing_elements: Mirror::new(server, &mirrors.processing_elements, trim::processing_element),
            parallel_regions: Mirror::new(server, &mirrors.parallel_regions, trim::parallel_region),
            resizes: Mirror::new(server, &mirrors.resizes, trim::request),
            host_pools: Mirror::new(server, &mirrors.host_pools, trim::host_pool),
            exports: Mirror::new(server, &mirrors.exports, trim::export),
            imports: Mirror::new(server, &mirrors.imports, trim::import),
            consistent_regions: Mirror::new(server, &mirrors.consistent_regions, trim::consistent_region),
            pods: Mirror::selecting(server, &mirrors.pods, trim::pod, selector),
            services: Mirror::selecting(server, &mirrors.services, trimmed::service, selector),
            config_maps: Mirror::selecting(server, &mirrors.config_maps, trimmed::config_map, selector),
            mirrors,
        }
    }

    /// Delivers all changes to the mirrors. Returns how many there were.
    pub(crate) fn deliver_all(&mut self) -> usize {
        self.jobs.deliver(usize::MAX)
            + self.processing_elements.deliver(usize::MAX)
            + self.parallel_regions.deliver(usize::MAX)
            + self.resizes.deliver(usize::MAX)
            + self.host_pools.deliver(usize::MAX)
            + self.exports.deliver(usize::MAX)
            + self.imports.deliver(usize::MAX)
            + self.consistent_regions.deliver(usize::MAX)
            + self.pods.deliver(usize::MAX)
            + self.services.deliver(usize::MAX)
            + self.config_maps.deliver(usize::MAX)
    }
}

/// A reconcile that has thousands of writes before it, each of which takes long.
struct Endless;

impl Reconciler for Endless {
    type Answers = ();
    type Observation = ();
    type Decision = ();

    async fn observe(&self, _: &Key, (): &mut ()) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }

    fn decide((): &()) {}

    async fn act(&self, _: &Key, (): &mut (), (): (), (): ()) -> Result<Next, Error> {
        pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_takes_long_does_not_keep_the_process_from_giving_up_the_lease() {
    let queue = Queue::new("test", BackOff::default(), Sharing::none(), &Metrics::new("test"));
    queue.add(Key::new("n", "job"));
    let stop = CancellationToken::new();
    let (closing, asked) = (queue.clone(), stop.clone());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        closing.close();
        asked.cancel();
    });
    let start = Instant::now();
    let ended = end_in_time(each(queue, 1, Endless), &stop, Duration::from_secs(10));
    assert!(tokio::time::timeout(Duration::from_secs(60), ended).await.is_ok());
    assert_eq!(start.elapsed().as_secs(), 15);
}

/// The API server keeps what an object was created with apart from what is applied to it.
#[tokio::test]
async fn an_annotation_that_an_object_was_created_with_goes_when_it_is_not_wanted_any_more() {
    let server = Server::new();
    let (cluster, key) = (server.connect(), Key::new("n", "m"));
    let writer = Writer { cluster: &cluster, namespace: "n", manager: Manager("us") };
    let wanted = |keys: &[&str]| ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("n".to_owned()),
            name: Some("m".to_owned()),
            annotations: Some(keys.iter().map(|key| ((*key).to_owned(), "1".to_owned())).collect()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    writer.apply("hash", &wanted(&["kept", "old"]), None::<&ConfigMap>).await.unwrap();
    let by_user = json!({"metadata": {"annotations": {"of-user": "1"}}});
    server.connect().merge::<ConfigMap>(Manager("user"), &key, &by_user).await.unwrap();
    let existing = server.get::<ConfigMap>(&key).unwrap();
    writer.apply("hash", &wanted(&["kept"]), Some(&existing)).await.unwrap();
    let annotations = server.get::<ConfigMap>(&key).unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["hash", "kept", "of-user"]);
}

/// Whoever deletes an object that is about to be changed may not want it any more, and another one of its name is not
/// the one that was looked at.
#[tokio::test]
async fn a_change_makes_no_object_that_is_gone_and_changes_no_other_one() {
    let server = Server::new();
    let (cluster, key) = (server.connect(), Key::new("n", "m"));
    let writer = Writer { cluster: &cluster, namespace: "n", manager: Manager("us") };
    let wanted = |text: &str| ConfigMap {
        metadata: ObjectMeta { namespace: Some("n".to_owned()), name: Some("m".to_owned()), ..ObjectMeta::default() },
        data: Some([("text".to_owned(), text.to_owned())].into()),
        ..ConfigMap::default()
    };
    writer.apply("hash", &wanted("old"), None::<&ConfigMap>).await.unwrap();
    let existing = server.get::<ConfigMap>(&key).unwrap();
    server.remove::<ConfigMap>(&key);
    let changed = writer.apply("hash", &wanted("new"), Some(&existing)).await;
    assert!(matches!(changed, Err(Error::Conflict { .. })), "{changed:?}");
    assert_eq!(server.get::<ConfigMap>(&key), None);
    server.create(&wanted("of another"));
    let other = server.get::<ConfigMap>(&key);
    let changed = writer.apply("hash", &wanted("new"), Some(&existing)).await;
    assert!(matches!(changed, Err(Error::Conflict { .. })), "{changed:?}");
    assert_eq!(server.get::<ConfigMap>(&key), other);
}
