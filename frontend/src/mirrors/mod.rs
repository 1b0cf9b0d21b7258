//! The shared watches of the frontend: the kinds that it watches, and the indexes by which it finds their objects.
//!
//! | Kind | Indexes | What is left out |
//! |---|---|---|
//! | jobs, host pools, exports, imports, consistent regions | job | metadata that nobody reads |
//! | regions | job, job and name in the application | the same |
//! | PEs | job, host pool | the same |
//! | requests to resize | job, also only open ones, only its own, by caller; the job that they name | most metadata |
//! | pods with the label `app=streams` | job, PE | most of it |
//! | Services and ConfigMaps with this label | job | the status of a Service; the data of a ConfigMap |
//!
//! [`trim`] leaves out what nobody reads, and [`job_changes`] wakes those who wait for changes of a job.
//!
//! Where the rights of the frontend are given namespace by namespace, those of one may go. Then the mirrors have of it
//! what they had, or nothing: whoever decides asks first ([`Mirrors::unread`]), for all kinds at once, and leaves the
//! namespace alone (rule call-33).
//!
//! Knows: kinds, labels. Must not know: the controllers.

mod job_changes;
pub(crate) mod trim;

use self::job_changes::JobChanges;
use futures::future;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use kube::{Client, Resource};
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use streams_api::resize::RESIZES_MAX;
use streams_api::{ConsistentRegion, Export, HostPool, Import, Job, ParallelRegion, ProcessingElement, Resize, names};
use streams_kubernetes::Key;
use streams_kubernetes::metrics::Metrics;
use streams_kubernetes::watch::{
    ConfigMapMeta, Form, Index, Kept, Mirrored, Refusals, Scope, Timings, Trim, Watch, trimmed,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest name of an object.
const NAME_MAX: usize = 253;

const OF_JOB: &str = "job";
const OF_PE: &str = "pe";
const OF_POOL: &str = "pool";
const FOR_JOB: &str = "job that is asked for";
const OPEN: &str = "job, not ended";
const OWN: &str = "job that it is a request of";
const OF_CALLER: &str = "job that it is a request of, and who has asked";
const NAMED: &str = "job and name";

/// The indexes of pods.
static INDEXES_OF_PODS: [Index<Pod>; 2] = [by_job(), Index { name: OF_PE, group: |pod| pe_of_meta(&pod.metadata) }];
/// The indexes of PEs.
static INDEXES_OF_PES: [Index<ProcessingElement>; 2] = [by_job(), Index { name: OF_POOL, group: pool_of_pe }];
/// The indexes of requests.
static INDEXES_OF_RESIZES: [Index<Resize>; 5] = [
    by_job(),
    Index { name: FOR_JOB, group: |request| Some(request.spec.job_name.clone()) },
    Index { name: OPEN, group: |request| job_of_meta(&request.metadata).filter(|_| goes_on(request)) },
    Index { name: OWN, group: job_of_request },
    Index {
        name: OF_CALLER,
        group: |request| {
            let caller = request.metadata.annotations.as_ref()?.get(names::ANNOTATION_REQUESTED_BY)?;
            Some(group_of_caller(&job_of_request(request)?, caller))
        },
    },
];
/// The indexes of regions.
static INDEXES_OF_REGIONS: [Index<ParallelRegion>; 2] = [
    by_job(),
    Index { name: NAMED, group: |region| Some(group_of_region(&job_of_meta(&region.metadata)?, &region.spec.name)) },
];

/// The indexes of every other mirror.
pub const fn indexes<K: Mirrored>() -> &'static [Index<K>] {
    const { &[by_job()] }
}

const fn by_job<K: Mirrored>() -> Index<K> {
    Index { name: OF_JOB, group: |object| job_of_meta(object.meta()) }
}

/// Finds the objects of a job in a mirror with an index for it.
pub trait ByOwner<K: Mirrored> {
    /// How many objects this job controls, or have a label that names it, and no more than `most` of them: it takes as
    /// long as counting to that.
    fn count_of_job(&self, job: &Key, most: usize) -> usize;

    /// The objects that this job controls, or whose label names it, by name, to be read in part.
    fn kept_of_job(&self, job: &Key) -> Vec<(Key, Kept<K>)>;

    /// The same, each read when it is its turn: there may be thousands.
    fn of_job(&self, job: &Key) -> impl Iterator<Item = Arc<K>> {
        self.kept_of_job(job).into_iter().filter_map(|(_, object)| object.read())
    }
}

impl<K: Mirrored> ByOwner<K> for Watch<K> {
    fn kept_of_job(&self, job: &Key) -> Vec<(Key, Kept<K>)> {
        self.of_group(OF_JOB, job)
    }

    fn count_of_job(&self, job: &Key, most: usize) -> usize {
        self.count_in_group(OF_JOB, job, most)
    }
}

/// The job that controls an object, or that its labels name.
pub fn job_of<K: Resource>(object: &K) -> Option<Key> {
    Some(beside(object.meta(), &job_of_meta(object.meta())?))
}

/// The PE that controls an object, or that its labels name.
pub fn pe_of<K: Resource>(object: &K) -> Option<Key> {
    Some(beside(object.meta(), &pe_of_meta(object.meta())?))
}

/// Another object of the namespace.
fn beside(meta: &ObjectMeta, name: &str) -> Key {
    Key::new(meta.namespace.as_deref().unwrap_or_default(), name)
}

/// The job that controls the object; if none does, the one that its label names. Labels can be taken away.
fn job_of_meta(meta: &ObjectMeta) -> Option<String> {
    let job = controller_of::<Job>(meta).or_else(|| meta.labels.as_ref()?.get(names::LABEL_JOB).map(String::as_str))?;
    Some(job.to_owned())
}

/// The name of the object of this kind that controls the object. Mirrors keep it beside the object, and a reference may
/// have what is too long to be a name.
fn controller_of<K: Resource<DynamicType = ()>>(meta: &ObjectMeta) -> Option<&str> {
    let mut controllers = meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let is_of_kind = |owner: &&OwnerReference| {
        owner.kind == K::kind(&()) && owner.api_version == K::api_version(&()) && owner.name.len() <= NAME_MAX
    };
    controllers.find(is_of_kind).map(|owner| owner.name.as_str())
}

/// Whether something may still become of a request. One that is being deleted is withdrawn, or it is committed, and the
/// job says what is left to be written (rule elasticity-17).
fn goes_on(request: &Resize) -> bool {
    !request.phase().is_final() && request.metadata.deletion_timestamp.is_none()
}

/// The name of the job that a request is one of, or is about to become one of, whatever its labels say: it names the
/// job, and the job controls it, or nothing does yet. What is being deleted is none any more.
fn job_of_request(request: &Resize) -> Option<String> {
    let meta = &request.metadata;
    let is_controlled = meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
    let job = &request.spec.job_name;
    let is_own = if is_controlled { controller_of::<Job>(meta) == Some(job.as_str()) } else { goes_on(request) };
    (is_own && meta.deletion_timestamp.is_none()).then(|| job.clone())
}

/// The name of the host pool in which a PE is placed.
fn pool_of_pe(pe: &ProcessingElement) -> Option<String> {
    pe.spec.placement.pool.as_ref().map(|pool| names::host_pool(&pe.spec.job_name, pool.index))
}

/// Stands for a region of a job; the name of a job has no slash.
fn group_of_region(job: &str, region: &str) -> String {
    format!("{job}/{region}")
}

/// Stands for what somebody has asked of a job.
fn group_of_caller(job: &str, caller: &str) -> String {
    format!("{job}/{caller}")
}

fn pe_of_meta(meta: &ObjectMeta) -> Option<String> {
    if let Some(pe) = controller_of::<ProcessingElement>(meta) {
        return Some(pe.to_owned());
    }
    let job = job_of_meta(meta)?;
    let pe = meta.labels.as_ref()?.get(names::LABEL_PE)?;
    Some(format!("{job}-{pe}"))
}

/// The address of a pod that has not ended: those of ended pods are given to others.
pub(crate) fn address_of(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let has_ended = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let address: IpAddr = status.pod_ip.as_ref()?.parse().ok()?;
    (!has_ended).then(|| address.to_canonical())
}

/// The addresses of a pod that has not ended: of each family of addresses that the cluster has there is one, and the
/// first is [`address_of`].
pub(crate) fn addresses_of(pod: &Pod) -> [Option<IpAddr>; 2] {
    let first = address_of(pod);
    let listed = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    let mut others = listed.filter_map(|listed| Some(listed.ip.parse::<IpAddr>().ok()?.to_canonical()));
    [first, first.and_then(|first| others.find(|other| *other != first))]
}

/// Label selector of everything that belongs to a job.
pub(crate) fn of_streams() -> String {
    format!("{}={}", names::LABEL_APP, names::APP)
}

/// Tells those that wait for a job of every change of one of its objects.
fn tell_of_part<K: Mirrored>(mirror: &Watch<K>, changes: &JobChanges) {
    let changes = changes.clone();
    mirror.subscribe(move |object| {
        if let Some(job) = job_of(object) {
            changes.tell(&job);
        }
    });
}

/// The watches of a process. Each is a task of its own: what subscribers of one kind do holds up no other kind.
struct Watches<'a> {
    tasks: JoinSet<()>,
    client: &'a Client,
    scope: &'a Scope,
    stop: &'a CancellationToken,
}

impl Watches<'_> {
    /// Fills a mirror with the objects that have this label.
    fn begin<K: Mirrored>(&mut self, watch: &Watch<K>, selector: Option<&str>, trim: Trim<K>) {
        let (watch, client, scope, stop) = (watch.clone(), self.client.clone(), self.scope.clone(), self.stop.clone());
        let selector = selector.map(str::to_owned);
        self.tasks.spawn(async move {
            watch.run(client, scope, selector.as_deref(), trim, Timings::default(), stop).await;
        });
    }
}

/// Waits until all have ended after `stop`, or one of them has ended before: then the others end with it. What panicked
/// there goes on here.
async fn ended(mut tasks: JoinSet<()>, stop: &CancellationToken) {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
            _ if !stop.is_cancelled() => return,
            _ => {}
        }
    }
}

/// One mirror per kind. Cheap to clone; all clones are the same mirrors.
#[derive(Clone)]
pub struct Mirrors {
    /// Jobs.
    pub jobs: Watch<Job>,
    /// Processing elements.
    pub processing_elements: Watch<ProcessingElement>,
    /// Parallel regions.
    pub parallel_regions: Watch<ParallelRegion>,
    /// Requests to resize.
    pub resizes: Watch<Resize>,
    /// Host pools.
    pub host_pools: Watch<HostPool>,
    /// Exported streams.
    pub exports: Watch<Export>,
    /// Subscriptions.
    pub imports: Watch<Import>,
    /// Consistent regions.
    pub consistent_regions: Watch<ConsistentRegion>,
    /// Pods of PEs, trimmed.
    pub pods: Watch<Pod>,
    /// Services of jobs and PEs.
    pub services: Watch<Service>,
    /// ConfigMaps of jobs and PEs, without their data.
    pub config_maps: Watch<ConfigMapMeta>,
    /// Who waits for changes of a job, its regions, and its requests to resize.
    pub(crate) job_changes: JobChanges,
    /// Namespaces in which some kind may not be read.
    pub(crate) refusals: Refusals,
}

/// Makes empty mirrors. Each of their kinds counts for whether a namespace may be read (rule call-33).
struct MirrorBuilder<'a> {
    metrics: &'a Metrics,
    refusals: &'a Refusals,
}

impl MirrorBuilder<'_> {
    fn mirror<K: Mirrored>(&self, indexes: &'static [Index<K>]) -> Watch<K> {
        self.mirror_in_form(indexes, Form::Packed)
    }

    fn mirror_in_form<K: Mirrored>(&self, indexes: &'static [Index<K>], form: Form) -> Watch<K> {
        Watch::in_form(self.metrics, indexes, form).among(self.refusals)
    }

    /// The mirror of a kind that the job controller applies: what cannot be read is applied again.
    fn mirror_of_applied<K: Mirrored>(&self, indexes: &'static [Index<K>]) -> Watch<K> {
        self.mirror(indexes).written_again_by(names::ANNOTATION_APPLIED_HASH)
    }
}

impl Mirrors {
    /// Empty mirrors that [`Mirrors::run`] fills.
    pub fn new(metrics: &Metrics) -> Self {
        let refusals = Refusals::default();
        let builder = MirrorBuilder { metrics, refusals: &refusals };
        // A job is asked for at every change of each of its objects, and hardly when none of them changes.
        let jobs = builder.mirror_in_form(indexes(), Form::PackedAtRest);
        let parallel_regions = builder.mirror(&INDEXES_OF_REGIONS);
        let resizes = builder.mirror(&INDEXES_OF_RESIZES);
        let job_changes = JobChanges::default();
        jobs.subscribe({
            let changes = job_changes.clone();
            move |job: &Job| changes.tell(&Key::of(job))
        });
        tell_of_part(&parallel_regions, &job_changes);
        tell_of_part(&resizes, &job_changes);
        Self {
            jobs,
            processing_elements: builder.mirror_of_applied(&INDEXES_OF_PES),
            parallel_regions,
            resizes,
            host_pools: builder.mirror_of_applied(indexes()),
            exports: builder.mirror_of_applied(indexes()),
            imports: builder.mirror_of_applied(indexes()),
            consistent_regions: builder.mirror_of_applied(indexes()),
            pods: builder.mirror(&INDEXES_OF_PODS),
            services: builder.mirror(indexes()),
            config_maps: builder.mirror(indexes()),
            job_changes,
            refusals,
        }
    }

    /// Why nothing may be decided, or said, of a namespace, in words for people: the API server does not let this
    /// frontend read some kind there, so that any of the mirrors may lack what is there (rule call-33).
    pub fn unread(&self, namespace: &str) -> Option<String> {
        self.refusals.words(namespace)
    }

    /// The pods that this PE (`<job>-<peId>`) controls, or whose labels name it, by name. Anybody may label as many as
    /// he likes: [`pods_of_pe`](crate::pods_of_pe) reads the few that may be those of the PE.
    pub(crate) fn pods_of_pe(&self, pe: &Key) -> Vec<(Key, Kept<Pod>)> {
        self.pods.of_group(OF_PE, pe)
    }

    /// Whether an object has the name of this PE of a job, and cannot be read (rule call-6).
    pub(crate) fn has_unreadable_pe(&self, job: &Key, id: u64) -> bool {
        self.processing_elements.is_unreadable(&job.sibling(&names::processing_element(&job.name, id)))
    }

    /// The PEs that are placed in this host pool of a job, by name.
    pub(crate) fn pes_of_pool(&self, job: &Key, index: u64) -> impl Iterator<Item = Key> + use<> {
        let pool = job.sibling(&names::host_pool(&job.name, index));
        self.processing_elements.of_group(OF_POOL, &pool).into_iter().map(|(pe, _)| pe)
    }

    /// The requests that name this job, whether it has them or not, by name.
    pub(crate) fn resizes_for(&self, job: &Key) -> impl Iterator<Item = Key> + use<> {
        self.resizes.of_group(FOR_JOB, job).into_iter().map(|(request, _)| request)
    }

    /// How many requests this job has, with those that become its own as soon as they are looked at. Anybody can make
    /// more than it may have: these are not counted.
    pub(crate) fn number_of_resizes(&self, job: &Key) -> usize {
        self.resizes.count_in_group(OWN, job, RESIZES_MAX)
    }

    /// How many of them this caller has asked for, as they are annotated with it; not more than the job may have.
    pub(crate) fn number_of_resizes_by(&self, job: &Key, caller: &str) -> usize {
        let of_caller = job.sibling(&group_of_caller(&job.name, caller));
        self.resizes.count_in_group(OF_CALLER, &of_caller, RESIZES_MAX)
    }

    /// Whether as many requests of this job go on as it may have.
    pub(crate) fn has_as_many_open_resizes_as_it_may(&self, job: &Key) -> bool {
        self.resizes.count_in_group(OPEN, job, RESIZES_MAX) == RESIZES_MAX
    }

    /// The requests of this job that go on, each read when it is its turn.
    pub(crate) fn open_resizes(&self, job: &Key) -> impl Iterator<Item = Arc<Resize>> + use<> {
        self.resizes.of_group(OPEN, job).into_iter().filter_map(|(_, request)| request.read())
    }

    /// The regions of this name in the application of a job: more than one, if somebody has made another.
    pub(crate) fn regions_named(&self, job: &Key, region: &str) -> impl Iterator<Item = Arc<ParallelRegion>> + use<> {
        let group = job.sibling(&group_of_region(&job.name, region));
        self.parallel_regions.of_group(NAMED, &group).into_iter().filter_map(|(_, region)| region.read())
    }

    /// Fills the mirrors and keeps them filled until `stop`. It ends before if one of the watches does, as what is seen
    /// of the cluster would be a part of it from then on.
    pub async fn run(&self, client: &Client, scope: &Scope, stop: &CancellationToken) {
        let mut watches = Watches { tasks: JoinSet::new(), client, scope, stop };
        // Users need not label their jobs; everything else is labelled by the job controller.
        watches.begin(&self.jobs, None, trim::job);
        watches.begin(&self.processing_elements, None, trim::processing_element);
        watches.begin(&self.parallel_regions, None, trim::parallel_region);
        watches.begin(&self.host_pools, None, trim::host_pool);
        watches.begin(&self.resizes, None, trim::request);
        watches.begin(&self.exports, None, trim::export);
        watches.begin(&self.imports, None, trim::import);
        watches.begin(&self.consistent_regions, None, trim::consistent_region);
        let of_streams = of_streams();
        watches.begin(&self.pods, Some(&of_streams), trim::pod);
        watches.begin(&self.services, Some(&of_streams), trimmed::service);
        watches.begin(&self.config_maps, Some(&of_streams), trimmed::config_map);
        ended(watches.tasks, stop).await;
    }

    /// Waits until every mirror has been filled once.
    pub async fn synced(&self) {
        self.jobs.synced().await;
        self.processing_elements.synced().await;
        self.parallel_regions.synced().await;
        self.resizes.synced().await;
        self.host_pools.synced().await;
        self.exports.synced().await;
        self.imports.synced().await;
        self.consistent_regions.synced().await;
        self.pods.synced().await;
        self.services.synced().await;
        self.config_maps.synced().await;
    }

    /// Waits until what a leader decides by is as new as this moment (rule call-28): jobs, what they and their PEs were
    /// asked to be, and what PEs were told by consistent regions. Of all other kinds the mirrors may be behind: they
    /// are made again, under the same names.
    ///
    /// # Errors
    /// The API server does not say which objects there are.
    pub async fn catch_up(&self, client: &Client, scope: &Scope) -> kube::Result<()> {
        let wanted = future::try_join4(
            self.jobs.catch_up(client, scope),
            self.parallel_regions.catch_up(client, scope),
            self.resizes.catch_up(client, scope),
            self.consistent_regions.catch_up(client, scope),
        );
        future::try_join(wanted, self.processing_elements.catch_up(client, scope)).await.map(|_| ())
    }

    /// Each kind, and why its mirror must not be relied on, if so.
    pub fn health(&self) -> [(String, Option<String>); 11] {
        let timings = Timings::default();
        [
            self.jobs.health(timings),
            self.processing_elements.health(timings),
            self.parallel_regions.health(timings),
            self.resizes.health(timings),
            self.host_pools.health(timings),
            self.exports.health(timings),
            self.imports.health(timings),
            self.consistent_regions.health(timings),
            self.pods.health(timings),
            self.services.health(timings),
            self.config_maps.health(timings),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    #[tokio::test]
    async fn a_watch_that_ends_ends_the_others_unless_all_are_to_end() {
        let panics = || async { panic!("on purpose") };
        for does_panic in [true, false] {
            let (stop, other) = (CancellationToken::new(), CancellationToken::new());
            let mut tasks = JoinSet::new();
            let dropped = other.clone().drop_guard();
            tasks.spawn(async move {
                let _dropped = dropped;
                std::future::pending().await
            });
            tasks.spawn(async move {
                if does_panic {
                    panics().await
                }
            });
            let waits = tokio::spawn(async move { ended(tasks, &stop).await });
            assert_eq!(waits.await.is_err_and(|error| error.is_panic()), does_panic);
            other.cancelled().await;
        }
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(stop.clone().cancelled_owned());
        tasks.spawn(std::future::ready(()));
        stop.cancel();
        ended(tasks, &stop).await;
    }
    #[test]
    fn a_custom_resource_is_read_as_it_was_delivered() {
        let metadata = json!({
            "namespace": "n", "name": "x", "uid": "u", "resourceVersion": "7", "generation": 3,
            "creationTimestamp": "2026-11-22T10:11:12Z", "annotations": {"a": "b"},
        });
        let condition = json!({
            "type": "Ready", "status": "True", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-11-22T10:11:13Z",
        });
        let pe: ProcessingElement = serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {
                "jobName": "x", "jobId": 1, "id": 2, "generation": 3, "contentId": "c", "runtimeId": "r",
                "configMap": {"name": "m", "compressed": true}, "operatorCount": 1, "operators": ["o"],
                "inputPorts": [0, 1], "placement": {"host": "h", "pool": {"index": 4}}, "environment": {"A": "1"},
                "image": "i", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "1Gi"}},
                "restartFailedPod": false, "transportSecurityType": "TLSv1.2",
                "dataVolumeClaim": {"name": "d", "subPath": "s"},
            },
            "status": {
                "phase": "Running", "launchCount": 5, "runningSince": "2026-11-22T10:11:14Z",
                "conditions": [condition],
                "lastTermination": {"podName": "p", "launchCount": 4, "outcome": "Lost", "deletedBy": "Other"},
            },
        }))
        .unwrap();
        let region: ParallelRegion = serde_json::from_value(json!({
            "metadata": metadata, "spec": {"jobName": "x", "index": 0, "name": "R", "width": 7},
            "status": {"conditions": [condition]},
        }))
        .unwrap();
        let key = Key::new("n", "x");
        assert_eq!(Watch::filled(indexes(), [pe.clone()]).get(&key).as_deref(), Some(&pe));
        assert_eq!(Watch::filled(indexes(), [region.clone()]).get(&key).as_deref(), Some(&region));
    }

    #[test]
    fn pes_are_found_by_their_host_pool() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        for (namespace, job, id, pool) in
            [("n", "flow", 1, Some(3)), ("n", "flow", 2, Some(3)), ("n", "flow", 3, None), ("m", "flow", 4, Some(3))]
        {
            let placement = pool.map_or(json!({}), |index| json!({"pool": {"index": index}}));
            mirrors.processing_elements.insert(
                serde_json::from_value(json!({
                    "metadata": {"namespace": namespace, "name": format!("{job}-{id}")},
                    "spec": {
                        "jobName": job, "jobId": 1, "id": id, "generation": 1, "contentId": "c", "runtimeId": "r",
                        "configMap": {"name": "m", "compressed": true}, "operatorCount": 1, "operators": ["o"],
                        "placement": placement, "image": "i", "restartFailedPod": false,
                    },
                }))
                .unwrap(),
            );
        }
        for (job, pool, expected) in
            [("n/flow", 3, "n/flow-1 n/flow-2"), ("n/flow", 1, ""), ("n/other", 3, ""), ("m/flow", 3, "m/flow-4")]
        {
            let (namespace, name) = job.split_once('/').unwrap();
            let found = mirrors.pes_of_pool(&Key::new(namespace, name), pool).map(|pe| pe.to_string());
            assert_eq!(found.collect::<Vec<_>>().join(" "), expected, "{job} {pool}");
        }
    }

    #[test]
    fn regions_are_found_by_their_name_and_requests_by_whether_they_go_on() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        for (job, index, name) in [("flow", 0, "R"), ("flow", 1, "S"), ("other", 0, "R")] {
            mirrors.parallel_regions.insert(
                serde_json::from_value(json!({
                    "metadata": {
                        "namespace": "n", "name": format!("{job}-{index}"), "labels": names::job_labels(job),
                    },
                    "spec": {"jobName": job, "index": index, "name": name, "width": 2},
                }))
                .unwrap(),
            );
        }
        for (job, name, expected) in [("flow", "R", "flow-0"), ("flow", "S", "flow-1"), ("flow", "T", "")] {
            let found = mirrors.regions_named(&Key::new("n", job), name);
            let found: Vec<_> = found.filter_map(|region| region.metadata.name.clone()).collect();
            assert_eq!(found.join(" "), expected, "{job} {name}");
        }
        let request = |phase: &str| {
            serde_json::from_value::<Resize>(json!({
                "metadata": {"namespace": "n", "name": "r", "labels": names::job_labels("flow")},
                "spec": {"jobName": "flow", "regions": [{"name": "R", "width": 3}]}, "status": {"phase": phase},
            }))
            .unwrap()
        };
        for (phase, is_deleted, expected) in
            [("Pending", false, 1), ("Written", false, 1), ("RolledOut", false, 0), ("Pending", true, 0)]
        {
            let mut request = request(phase);
            request.metadata.deletion_timestamp = is_deleted.then_some(Time(Timestamp::UNIX_EPOCH));
            mirrors.resizes.insert(request);
            assert_eq!(mirrors.open_resizes(&Key::new("n", "flow")).count(), expected, "{phase} {is_deleted}");
        }
    }

    #[test]
    fn a_job_has_as_many_requests_as_it_may_once_so_many_go_on() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        let flow = Key::new("n", "flow");
        for number in 0..RESIZES_MAX {
            assert!(!mirrors.has_as_many_open_resizes_as_it_may(&flow), "{number}");
            let mut request = Resize::new(&format!("r{number}"), Default::default());
            request.metadata.namespace = Some("n".to_owned());
            request.metadata.labels = Some(names::job_labels("flow"));
            mirrors.resizes.insert(request);
        }
        assert!(mirrors.has_as_many_open_resizes_as_it_may(&flow));
        assert!(!mirrors.has_as_many_open_resizes_as_it_may(&Key::new("n", "flow-2")));
    }

    /// Anybody may label what is none of the job's.
    #[test]
    fn a_request_counts_for_the_job_that_it_names_and_that_controls_it_or_will() {
        let (version, kind) = (Job::api_version(&()), Job::kind(&()));
        // the job that it names, its controller, phase, it is being deleted -> it counts for the job
        let table = [
            ("flow", Some((&*version, &*kind, "flow")), "Pending", false, true),
            ("flow", Some((&*version, &*kind, "flow")), "RolledOut", false, true),
            ("flow", None, "Pending", false, true),
            // It was refused before there was a job.
            ("flow", None, "Refused", false, false),
            ("nobody", None, "Pending", false, false),
            ("nobody", Some((&*version, &*kind, "flow")), "Pending", false, false),
            ("flow", Some((&*version, &*kind, "other")), "Pending", false, false),
            ("flow", Some(("batch/v1", &*kind, "flow")), "Pending", false, false),
            ("flow", Some((&*version, &*kind, "flow")), "Pending", true, false),
        ];
        for (job, controller, phase, is_deleted, expected) in table {
            let owners = controller.map(|(version, kind, name)| {
                json!([{"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true}])
            });
            let mut metadata = json!({
                "namespace": "n", "name": "r", "labels": names::job_labels("flow"), "ownerReferences": owners,
                "annotations": {names::ANNOTATION_REQUESTED_BY: "me"},
            });
            if is_deleted {
                metadata["deletionTimestamp"] = json!("2026-11-26T00:00:00Z");
            }
            let mirrors = Mirrors::new(&Metrics::new("test"));
            mirrors.resizes.insert(
                serde_json::from_value(json!({
                    "metadata": metadata, "status": {"phase": phase},
                    "spec": {"jobName": job, "regions": [{"name": "R", "width": 3}]},
                }))
                .unwrap(),
            );
            let flow = Key::new("n", "flow");
            let counted = [mirrors.number_of_resizes(&flow), mirrors.number_of_resizes_by(&flow, "me")];
            assert_eq!(counted, [usize::from(expected); 2], "{job} {controller:?} {phase} {is_deleted}");
            assert_eq!(mirrors.number_of_resizes_by(&flow, "you"), 0);
        }
    }

    /// Whoever asks for more than a job may have would have all of them counted each time.
    #[test]
    fn requests_are_counted_up_to_what_a_job_may_have() {
        let mirrors = Mirrors::new(&Metrics::new("test"));
        for number in 0..RESIZES_MAX + 200 {
            let metadata = json!({
                "namespace": "n", "name": format!("r{number}"), "labels": names::job_labels("flow"),
                "annotations": {names::ANNOTATION_REQUESTED_BY: "me"},
            });
            let request = json!({
                "metadata": metadata, "status": {"phase": "Pending"},
                "spec": {"jobName": "flow", "regions": [{"name": "R", "width": 3}]},
            });
            mirrors.resizes.insert(serde_json::from_value(request).unwrap());
        }
        let flow = Key::new("n", "flow");
        assert_eq!([mirrors.number_of_resizes(&flow), mirrors.number_of_resizes_by(&flow, "me")], [RESIZES_MAX; 2]);
        assert!(mirrors.has_as_many_open_resizes_as_it_may(&flow));
    }

    #[test]
    fn labels_name_job_and_pe() {
        let meta = ObjectMeta {
            namespace: Some("n".to_owned()),
            labels: Some(names::pe_labels("flow", 3)),
            ..ObjectMeta::default()
        };
        let service = Service { metadata: meta, ..Service::default() };
        assert_eq!(job_of(&service), Some(Key::new("n", "flow")));
        assert_eq!(pe_of(&service), Some(Key::new("n", "flow-3")));
        let mirrors = Mirrors::new(&Metrics::new("test"));
        mirrors.pods.insert(Pod { metadata: service.metadata.clone(), ..Pod::default() });
        mirrors.services.insert(service);
        let of_job = |job: &str| {
            let job = Key::new("n", job);
            (mirrors.pods.of_job(&job).count(), mirrors.services.of_job(&job).count())
        };
        assert_eq!((of_job("flow"), of_job("other")), ((1, 1), (0, 0)));
        let of_pe = |pe: &str| mirrors.pods_of_pe(&Key::new("n", pe)).len();
        assert_eq!((of_pe("flow-3"), of_pe("flow-4")), (1, 0));
        assert_eq!(job_of(&Service::default()), None);
    }
}
