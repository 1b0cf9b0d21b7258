//! A model of everything around [`decide`]: the API server and the process of the controller.
//!
//! * this file — objects, observing, acting, crashes;
//! * [`surroundings`] — long work, the PE controller, the user, time;
//! * [`compiler`] — what is compiled;
//! * [`checks`] — what must hold after every write, and at rest.

mod checks;
mod compiler;
mod surroundings;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;

use crate::controllers::job::{
    chunks::Document,
    decide::{Action, Change, Child, Decision, Owned, Report, Step, Stored, WhichGeneration, decide},
    describe::describe,
    observed::{Children, Deadlines, Loaded, Object, Observed, Pe, Run, Wanted},
    tasks::{Slot, Task, Tasks},
    transition,
};
use streams_api::{JobStatus, RequestedWidths, StoredPlan};

use self::compiler::Layout;

/// Regions of the application.
pub(super) const REGIONS: [&str; 2] = ["R", "S"];

/// The process that the controller runs in died.
#[derive(Debug)]
pub(super) struct Crashed;

/// A ParallelRegion object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Region {
    pub(super) name: &'static str,
    pub(super) width: u32,
    pub(super) deleting: bool,
    uid: String,
    generation: i64,
}

/// What the process keeps in memory.
#[derive(Clone, Debug)]
struct Memory {
    tasks: Tasks,
    plans: BTreeMap<String, Arc<Wanted>>,
}

impl Memory {
    fn new() -> Self {
        Self { tasks: Tasks::idle(), plans: BTreeMap::new() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: Timestamp,
    /// The spec: its `metadata.generation`, and what compilation depends on.
    pub(super) spec: (i64, String),
    /// The application does not compile with this spec.
    pub(super) broken: bool,
    pub(super) status: JobStatus,
    next_job_id: u64,
    pub(super) children: Children,
    pub(super) regions: BTreeMap<u64, Region>,
    /// The newest request for several regions: an annotation of the first of them.
    requested: RequestedWidths,
    regions_created: u32,
    /// All sets of widths that were wanted at some time, as a whole.
    wanted_widths: Vec<BTreeMap<String, u32>>,
    /// What is written in chunks, by digest. Only readable while all chunks are there.
    plans: BTreeMap<String, (Arc<Wanted>, Layout)>,
    memory: Memory,
    /// Compilers that the fusion service has: a text can only be rendered by the compiler of its plan.
    pub(super) compiler: String,
    pub(super) services_down: bool,
    /// How often each PE was started.
    pub(super) starts: BTreeMap<u64, u32>,
    /// Writes so far.
    pub(super) writes: usize,
    /// The process dies after this write.
    pub(super) crash_at: Option<usize>,
    pub(super) log: Vec<String>,
}
impl World {
    pub(super) fn new() -> Self {
        Self {
            now: Timestamp::from_second(1_000_000).unwrap(),
            spec: (1, "a".to_owned()),
            broken: false,
            status: JobStatus::default(),
            next_job_id: 0,
            children: Children::default(),
            regions: BTreeMap::new(),
            requested: RequestedWidths::default(),
            regions_created: 0,
            wanted_widths: Vec::new(),
            plans: BTreeMap::new(),
            memory: Memory::new(),
            compiler: "1".to_owned(),
            services_down: false,
            starts: BTreeMap::new(),
            writes: 0,
            crash_at: None,
            log: Vec::new(),
        }
    }

    /// One write to the API server; the process may die after it.
    fn wrote(&mut self, what: String) -> Result<(), Crashed> {
        self.check_invariants(&what);
        self.writes += 1;
        self.log.push(what);
        if self.crash_at == Some(self.writes) {
            self.log.push("crash".to_owned());
            self.crash();
            return Err(Crashed);
        }
        Ok(())
    }

    pub(super) fn crash(&mut self) {
        self.memory = Memory::new();
    }

    fn load(&mut self, stored: Option<&StoredPlan>) -> Option<Loaded> {
        let StoredPlan { generation, sha256, chunks, .. } = stored?;
        if let Some(wanted) = self.memory.plans.get(sha256) {
            return Some(Loaded::Whole(Arc::clone(wanted)));
        }
        let document = Document::Plan { generation: *generation };
        let whole =
            (0..*chunks).all(|index| self.children.chunks.contains_key(&document.chunk_name("job", sha256, index)));
        if !whole {
            return Some(Loaded::Lost("chunks".to_owned()));
        }
        let wanted = Arc::clone(&self.plans[sha256].0);
        self.memory.plans.insert(sha256.clone(), Arc::clone(&wanted));
        Some(Loaded::Whole(wanted))
    }

    pub(super) fn observe(&mut self) -> Observed {
        let status = self.status.clone();
        let committed = self.load(status.plan.as_ref());
        let proposed = self.load(status.proposal.as_ref().map(|p| &p.plan));
        let applied = committed.as_ref().and_then(Loaded::whole).map(|w| w.widths.clone()).unwrap_or_default();
        let live = |name: &str| self.regions.values().find(|region| region.name == name && !region.deleting);
        let desired = |name: &str, applied: u32| {
            live(name).map_or(applied, |region| self.pending(region).unwrap_or(region.width))
        };
        let pending =
            |(index, region): (&u64, &Region)| Some((*index, self.pending(region).filter(|_| !region.deleting)?));
        let widths_to_take_over = self.regions.iter().filter_map(pending).collect();
        let desired_widths = applied.iter().map(|(name, width)| (name.clone(), desired(name, *width))).collect();
        let mut children = self.children.clone();
        let object = |region: &Region| Object { applied: String::new(), deleting: region.deleting };
        children.regions = self.regions.iter().map(|(index, region)| (*index, object(region))).collect();
        Observed {
            now: self.now,
            spec_generation: self.spec.0,
            inputs: format!("{}/{}", self.spec.1, status.adl.as_ref().map_or("", |adl| adl.sha256.as_str())),
            refusal: None,
            deadlines: Deadlines {
                submission: Duration::from_secs(300),
                resize: Duration::from_secs(300),
                max_attempts: 3,
            },
            last_failure: None,
            job_config_map: labels(&status),
            status,
            committed,
            proposed,
            desired_widths,
            refused_widths: BTreeMap::new(),
            widths_to_take_over,
            children,
            tasks: self.memory.tasks.clone(),
        }
    }

    /// Observes, decides and does some of what was decided.
    pub(super) fn step(&mut self, chosen: impl Fn(usize) -> bool) -> Result<Report, Crashed> {
        let observed = self.observe();
        let (decision, report) = decide(&observed);
        match &decision {
            Decision::Step(step) => {
                if chosen(0) {
                    self.take(step, &observed, &report)?;
                }
            }
            Decision::Work(actions) => {
                for (_, action) in actions.iter().enumerate().filter(|(index, _)| chosen(*index)) {
                    self.act(action)?;
                }
                let status = describe(&observed, &report, self.status.clone(), false);
                let is_finished = |status: &JobStatus| status.rollout.as_ref().is_some_and(|r| r.finished_at.is_some());
                if is_finished(&status) && !is_finished(&self.status) {
                    self.assert_nothing_superfluous();
                }
                if status != self.status {
                    self.status = status;
                    self.wrote("describe".to_owned())?;
                }
            }
        }
        Ok(report)
    }

    fn take(&mut self, step: &Step, observed: &Observed, report: &Report) -> Result<(), Crashed> {
        match step {
            Step::AllocateJobId => {
                let id = self.next_job_id;
                self.next_job_id += 1;
                self.wrote("count".to_owned())?;
                self.record(&Change::JobId(id), observed, report)
            }
            Step::Record(change) => self.record(change, observed, report),
        }
    }

    fn act(&mut self, action: &Action) -> Result<(), Crashed> {
        match action {
            Action::Start(task) => {
                let tasks = &mut self.memory.tasks;
                match task {
                    Task::Fetch(spec_generation) => tasks.fetch = Slot::Running(*spec_generation),
                    Task::Compile(key) => tasks.compile = Slot::Running(key.clone()),
                    Task::Publish(key) => tasks.publish = Slot::Running(key.clone()),
                    Task::Repair(key) => tasks.repair = Slot::Running(key.clone()),
                }
                Ok(())
            }
            Action::StoreAgain(Stored::Adl) => {
                if let Some(adl) = self.status.adl.clone()
                    && create(&mut self.children.chunks, Document::Adl.chunk_name("job", &adl.sha256, 0))
                {
                    self.wrote("adl chunk again".to_owned())?;
                }
                Ok(())
            }
            Action::StoreAgain(Stored::Plan(which)) => {
                let plan = match which {
                    WhichGeneration::Committed => self.status.plan.clone(),
                    WhichGeneration::Proposed => self.status.proposal.clone().map(|p| p.plan),
                };
                plan.map_or(Ok(()), |plan| self.write_plan(&plan).map(|_| ()))
            }
            Action::Apply(child, which) => self.apply(child, *which),
            Action::TakeOver { region, width } => {
                self.set_width(*region, *width);
                self.wrote(format!("region {region} takes over width {width}"))
            }
            Action::Delete(child, _) => {
                self.assert_unused(child);
                self.delete(child);
                self.wrote(format!("delete {child:?}"))
            }
        }
    }

    fn record(&mut self, change: &Change, observed: &Observed, report: &Report) -> Result<(), Crashed> {
        assert_eq!(observed.status, self.status, "nobody else writes the status");
        if *change == Change::Commit {
            self.assert_complete();
            self.assert_wanted_as_a_whole();
        }
        self.status = describe(observed, report, transition::apply(change, observed), true);
        transition::use_up(&mut self.memory.tasks, change);
        if *change == Change::Commit {
            // Only a committed generation has regions; what their objects say is wanted from here on.
            self.want();
        }
        self.wrote(format!("{change:?}").chars().take(60).collect())
    }

    pub(super) fn delete(&mut self, object: &Owned) {
        let children = &mut self.children;
        let object = match object {
            Owned::Child(Child::ProcessingElement(id)) => {
                children.processing_elements.get_mut(id).map(|pe| &mut pe.object)
            }
            Owned::Child(Child::Service(id)) => children.services.get_mut(id),
            Owned::Child(Child::HostPool(index)) => children.host_pools.get_mut(index),
            Owned::Child(Child::JobConfigMap) => children.job_config_map.as_mut(),
            Owned::ConfigMap(name) => children.texts.get_mut(name).or_else(|| children.chunks.get_mut(name)),
            Owned::Child(Child::Region(index)) => {
                if let Some(region) = self.regions.get_mut(index) {
                    region.deleting = true;
                }
                self.want();
                return;
            }
        };
        if let Some(object) = object {
            object.deleting = true;
        }
    }

    /// What is being deleted goes away.
    pub(super) fn collect(&mut self) -> bool {
        let children = &mut self.children;
        let count = |children: &Children, regions: &BTreeMap<u64, Region>| {
            children.processing_elements.len()
                + children.services.len()
                + children.host_pools.len()
                + children.texts.len()
                + children.chunks.len()
                + usize::from(children.job_config_map.is_some())
                + regions.len()
        };
        let before = count(children, &self.regions);
        children.processing_elements.retain(|_, pe| !pe.object.deleting);
        for objects in [&mut children.services, &mut children.host_pools] {
            objects.retain(|_, object| !object.deleting);
        }
        for objects in [&mut children.texts, &mut children.chunks] {
            objects.retain(|_, object| !object.deleting);
        }
        children.job_config_map.take_if(|object| object.deleting);
        if self.regions.first_key_value().is_some_and(|(_, home)| home.deleting) {
            self.requested = RequestedWidths::default();
        }
        self.regions.retain(|_, region| !region.deleting);
        let changed = before != count(&self.children, &self.regions);
        self.want();
        changed
    }

    fn apply(&mut self, child: &Child, which: WhichGeneration) -> Result<(), Crashed> {
        let plan = match which {
            WhichGeneration::Committed => self.status.plan.as_ref(),
            WhichGeneration::Proposed => self.status.proposal.as_ref().map(|p| &p.plan),
        };
        // The step that was recorded in the same decision may have changed what is in force.
        let Some(plan) = plan else { return Ok(()) };
        let wanted = Arc::clone(&self.plans[&plan.sha256].0);
        let labels = labels(&self.status);
        let children = &mut self.children;
        let object = |applied: &str| Object { applied: applied.to_owned(), deleting: false };
        match child {
            Child::ProcessingElement(id) => {
                let pe = &wanted.processing_elements[id];
                let Some((_, text)) = pe.choose(children) else { return Ok(()) };
                let existing = children.processing_elements.get(id);
                let same = existing.is_some_and(|existing| existing.generation >= pe.origin);
                let pe = Pe {
                    object: object(&text.processing_element),
                    generation: pe.origin,
                    config_map: text.config_map.clone(),
                    launched: existing.is_some_and(|pe| pe.launched),
                    run: if same { existing.map_or(Run::Pending, |pe| pe.run) } else { Run::Pending },
                };
                children.processing_elements.insert(*id, pe);
            }
            Child::Service(id) => {
                children.services.insert(*id, object(&wanted.processing_elements[id].service));
            }
            Child::Region(index) => {
                let name = REGIONS[usize::try_from(*index).unwrap()];
                let uid = self.regions_created.to_string();
                self.regions_created += u32::from(!self.regions.contains_key(index));
                let width = wanted.widths[name];
                self.regions.entry(*index).or_insert(Region { name, width, deleting: false, uid, generation: 1 });
                self.want();
            }
            Child::HostPool(index) => {
                children.host_pools.insert(*index, object(&wanted.host_pools[index]));
            }
            Child::JobConfigMap => children.job_config_map = Some(object(&labels)),
        }
        self.wrote(format!("apply {child:?}"))
    }

    /// Says whether it could be written: not while a chunk is being deleted.
    fn write_plan(&mut self, plan: &StoredPlan) -> Result<bool, Crashed> {
        let document = Document::Plan { generation: plan.generation };
        for index in 0..plan.chunks {
            if !create(&mut self.children.chunks, document.chunk_name("job", &plan.sha256, index)) {
                return Ok(false);
            }
            self.wrote(format!("plan chunk {index}"))?;
        }
        Ok(true)
    }

    /// What users can see, without what a crash may change (the job id).
    pub(super) fn visible(&self) -> impl PartialEq + std::fmt::Debug {
        let mut status = self.status.clone();
        status.job_id = None;
        status.conditions.clear();
        status.submission_started_at = None;
        status.rollout.iter_mut().for_each(|rollout| (rollout.started_at, rollout.finished_at) = (None, None));
        (
            status,
            self.children.processing_elements.clone(),
            self.regions.clone(),
            self.children.texts.clone(),
            self.starts.clone(),
        )
    }
}

/// The port labels: those of both generations.
fn labels(status: &JobStatus) -> String {
    let digest = |plan: Option<&StoredPlan>| plan.map_or_else(String::new, |plan| plan.sha256.clone());
    format!("{}+{}", digest(status.plan.as_ref()), digest(status.proposal.as_ref().map(|p| &p.plan)))
}
/// A create that is content with an object that is there, unless it is on its way out.
fn create(objects: &mut BTreeMap<String, Object>, name: String) -> bool {
    !objects.entry(name).or_default().deleting
}
