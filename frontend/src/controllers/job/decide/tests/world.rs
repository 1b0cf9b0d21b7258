//! A model of everything around [`decide`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::{JobPhase, JobStatus, StoredAdl, StoredPlan};
use crate::controllers::job::{
    chunks::Document,
    decide::{Action, Change, Child, Decision, Stored, Task, Which, decide},
    generation::Target,
    observed::{
        Children, Compilation, Compiled, Failure, Fates, Limits, Loaded, Object, Observed, Pe, Publish, Remedy, Run,
        Slot, Text, Wanted, WantedPe, Work,
    },
    present::present,
    transition,
};

/// Regions of the application.
pub(super) const REGIONS: [&str; 2] = ["R", "S"];
/// PEs that every generation has: source, sink, one that no width concerns, one whose text changes only where nobody looks.
const SOURCE: u64 = 0;
const SINK: u64 = 1;
const ALOOF: u64 = 2;
const BLIND: u64 = 3;

/// The process that the controller runs in died.
#[derive(Debug)]
pub(super) struct Crashed;

/// A ParallelRegion object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Region {
    pub(super) name: &'static str,
    pub(super) width: u32,
    pub(super) deleting: bool,
}

/// What the compiler remembers in its layout: PEs of channels, and what they were last started with.
#[derive(Clone, Debug, Default)]
struct Layout {
    channels: BTreeMap<(&'static str, u32), u64>,
    /// Observable text by PE.
    observable: BTreeMap<u64, String>,
}

/// What the process keeps in memory.
#[derive(Clone, Debug)]
struct Memory {
    work: Work,
    plans: BTreeMap<String, Arc<Wanted>>,
}

impl Memory {
    fn new() -> Self {
        Self { work: Work::idle(), plans: BTreeMap::new() }
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

    /// What must hold after every write.
    fn check_invariants(&self, what: &str) {
        let Some(plan) = self.status.plan.as_ref().filter(|_| self.status.generation.is_some()) else { return };
        let (wanted, _) = &self.plans[&plan.sha256];
        assert_eq!(Some(wanted.generation), self.status.generation, "{what}: the plan is of the committed generation");
        for (id, pe) in &self.children.processing_elements {
            assert!(
                !pe.launched || pe.generation <= wanted.generation,
                "{what}: PE {id} was started before its generation was committed"
            );
        }
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
        let desired = |name: &str, applied: u32| {
            let region = self.regions.values().find(|region| region.name == name && !region.deleting);
            region.map_or(applied, |region| region.width)
        };
        let desired_widths = applied.iter().map(|(name, width)| (name.clone(), desired(name, *width))).collect();
        let mut children = self.children.clone();
        let object = |region: &Region| Object { applied: String::new(), deleting: region.deleting };
        children.regions = self.regions.iter().map(|(index, region)| (*index, object(region))).collect();
        Observed {
            now: self.now,
            spec_generation: self.spec.0,
            inputs: format!("{}/{}", self.spec.1, status.adl.as_ref().map_or("", |adl| adl.sha256.as_str())),
            refusal: None,
            limits: Limits { submission: Duration::from_secs(300), resize: Duration::from_secs(300), max_attempts: 3 },
            obstacle: None,
            job_config_map: labels(&status),
            status,
            committed,
            proposed,
            desired_widths,
            refused_widths: BTreeMap::new(),
            children,
            work: self.memory.work.clone(),
        }
    }

    /// Observes, decides and does some of what was decided.
    pub(super) fn step(&mut self, chosen: impl Fn(usize) -> bool) -> Result<Decision, Crashed> {
        let observed = self.observe();
        let decision = decide(&observed);
        let records =
            decision.actions.iter().filter(|a| matches!(a, Action::Record(_) | Action::AllocateJobId)).count();
        assert!(records <= 1, "one step of the status at a time: {:?}", decision.actions);
        for (_, action) in decision.actions.iter().enumerate().filter(|(index, _)| chosen(*index)) {
            self.act(action, &observed, &decision)?;
        }
        if records == 0 {
            let status = present(&observed, &decision, self.status.clone(), false);
            if status != self.status {
                self.status = status;
                self.wrote("describe".to_owned())?;
            }
        }
        Ok(decision)
    }

    fn act(&mut self, action: &Action, observed: &Observed, decision: &Decision) -> Result<(), Crashed> {
        match action {
            Action::AllocateJobId => {
                let id = self.next_job_id;
                self.next_job_id += 1;
                self.wrote("count".to_owned())?;
                self.record(&Change::JobId(id), observed, decision)
            }
            Action::Record(change) => self.record(change, observed, decision),
            Action::Start(task) => {
                let work = &mut self.memory.work;
                match task {
                    Task::Fetch { spec_generation } => work.fetch = Slot::Running(*spec_generation),
                    Task::Compile(key) => work.compile = Slot::Running(key.clone()),
                    Task::Publish(key) => work.publish = Slot::Running(key.clone()),
                    Task::Repair(key) => work.repair = Slot::Running(key.clone()),
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
                    Which::Committed => self.status.plan.clone(),
                    Which::Proposed => self.status.proposal.clone().map(|p| p.plan),
                };
                plan.map_or(Ok(()), |plan| self.write_plan(&plan).map(|_| ()))
            }
            Action::Apply(child, which) => self.apply(child, *which),
            Action::Delete(child, _) => {
                self.assert_unused(child);
                self.delete(child);
                self.wrote(format!("delete {child:?}"))
            }
        }
    }

    fn record(&mut self, change: &Change, observed: &Observed, decision: &Decision) -> Result<(), Crashed> {
        assert_eq!(observed.status, self.status, "nobody else writes the status");
        if *change == Change::Commit {
            self.assert_complete();
        }
        self.status = present(observed, decision, transition::apply(change, observed), true);
        self.memory.work.used(change);
        self.wrote(format!("{change:?}").chars().take(60).collect())
    }

    /// What is about to be committed is all there.
    fn assert_complete(&self) {
        let proposal = self.status.proposal.as_ref().expect("something is proposed");
        let (wanted, _) = &self.plans[&proposal.plan.sha256];
        for (id, pe) in &wanted.processing_elements {
            assert!(pe.choose(&self.children).is_some(), "the text of PE {id} is written");
            let object = self.children.processing_elements.get(id);
            if let Some(object) = object.filter(|object| object.generation == wanted.generation) {
                assert_eq!(
                    Some(&object.object.applied),
                    pe.choose(&self.children).map(|t| &t.processing_element),
                    "PE {id}"
                );
            }
        }
    }

    /// Nobody refers to what the controller deletes.
    fn assert_unused(&self, child: &Child) {
        let plans = self.status.plan.iter().chain(self.status.proposal.as_ref().map(|p| &p.plan));
        let generations: Vec<_> = plans.map(|plan| &self.plans[&plan.sha256].0).collect();
        match child {
            Child::ConfigMap(name) => {
                let pes = &self.children.processing_elements;
                let clean = self.status.generation.is_none() && self.status.proposal.is_none();
                assert!(clean || !pes.values().any(|pe| pe.config_map == *name), "{name} is mounted");
                for wanted in generations {
                    let used = wanted.processing_elements.values().any(|pe| pe.text.config_map == *name);
                    assert!(!used, "{name} is text of generation {}", wanted.generation);
                }
            }
            Child::ProcessingElement(id, _) => {
                let used = generations.iter().any(|wanted| wanted.processing_elements.contains_key(id));
                assert!(!used, "PE {id} is in use");
            }
            _ => {}
        }
    }

    pub(super) fn delete(&mut self, child: &Child) {
        let children = &mut self.children;
        let object = match child {
            Child::ProcessingElement(id, _) => children.processing_elements.get_mut(id).map(|pe| &mut pe.object),
            Child::Service(id) => children.services.get_mut(id),
            Child::HostPool(index) => children.host_pools.get_mut(index),
            Child::JobConfigMap => children.job_config_map.as_mut(),
            Child::ConfigMap(name) => children.texts.get_mut(name).or_else(|| children.chunks.get_mut(name)),
            Child::Region(index) => {
                if let Some(region) = self.regions.get_mut(index) {
                    region.deleting = true;
                }
                None
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
        self.regions.retain(|_, region| !region.deleting);
        before != count(children, &self.regions)
    }

    fn apply(&mut self, child: &Child, which: Which) -> Result<(), Crashed> {
        let plan = match which {
            Which::Committed => self.status.plan.as_ref(),
            Which::Proposed => self.status.proposal.as_ref().map(|p| &p.plan),
        };
        // The step that was recorded in the same decision may have changed what is in force.
        let Some(plan) = plan else { return Ok(()) };
        let wanted = Arc::clone(&self.plans[&plan.sha256].0);
        let labels = labels(&self.status);
        let children = &mut self.children;
        let object = |applied: &str| Object { applied: applied.to_owned(), deleting: false };
        match child {
            Child::ProcessingElement(id, config_map) => {
                let pe = &wanted.processing_elements[id];
                let text =
                    [Some(&pe.text), pe.carried.as_ref()].into_iter().flatten().find(|t| t.config_map == *config_map);
                let text = text.expect("a text of the plan");
                let existing = children.processing_elements.get(id);
                let same = existing.is_some_and(|existing| existing.generation >= pe.origin);
                let pe = Pe {
                    object: object(&text.processing_element),
                    generation: pe.origin,
                    config_map: config_map.clone(),
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
                self.regions.entry(*index).or_insert(Region { name, width: wanted.widths[name], deleting: false });
            }
            Child::HostPool(index) => {
                children.host_pools.insert(*index, object(&wanted.host_pools[index]));
            }
            Child::JobConfigMap => children.job_config_map = Some(object(&labels)),
            Child::ConfigMap(_) => panic!("ConfigMaps are not applied"),
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

    /// Long work that is going on comes to its end. Says whether there was any.
    pub(super) fn finish_work(&mut self, fails: bool) -> Result<bool, Crashed> {
        let retry = Remedy::Retry(self.now.checked_add(SignedDuration::from_secs(5)).unwrap());
        let fails = fails || self.services_down;
        let work = self.memory.work.clone();
        if let Slot::Running(key) = work.fetch {
            let fetched = if fails { None } else { self.fetch(key)? };
            self.memory.work.fetch = fetched.map_or(Slot::Failed(key, failure(retry)), |adl| Slot::Done(key, adl));
        } else if let Slot::Running(key) = work.compile {
            self.memory.work.compile = if fails {
                Slot::Failed(key, failure(retry))
            } else if self.broken {
                Slot::Failed(key, failure(Remedy::Correct))
            } else {
                match self.compile(&key)? {
                    Some(compiled) => Slot::Done(key, compiled),
                    None => Slot::Failed(key, failure(retry)),
                }
            };
        } else if let Slot::Running(key) = work.publish {
            self.memory.work.publish = self.publish(key, fails, retry)?;
        } else if let Slot::Running(key) = work.repair {
            self.memory.work.repair = self.publish(key, fails, retry)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn fetch(&mut self, spec_generation: i64) -> Result<Option<StoredAdl>, Crashed> {
        let sha256 = format!("{:0>64}", self.spec.1);
        let adl =
            StoredAdl { sha256: sha256.clone(), chunks: 1, size: 1, sab_name: "a.sab".to_owned(), spec_generation };
        if !create(&mut self.children.chunks, Document::Adl.chunk_name("job", &sha256, 0)) {
            return Ok(None);
        }
        self.wrote("adl chunk".to_owned())?;
        Ok(Some(adl))
    }

    fn publish(&mut self, key: Publish, fails: bool, retry: Remedy) -> Result<Slot<Publish, ()>, Crashed> {
        if fails {
            return Ok(Slot::Failed(key, failure(retry)));
        }
        let Some((wanted, _)) = self.plans.get(&key.plan) else { return Ok(Slot::Failed(key, failure(retry))) };
        let wanted = Arc::clone(wanted);
        let compiler = wanted.statistics.aadl_bytes.to_string();
        if compiler != self.compiler {
            return Ok(Slot::Failed(key, failure(Remedy::Recompile)));
        }
        for id in &key.pe_ids {
            if !create(&mut self.children.texts, wanted.processing_elements[id].text.config_map.clone()) {
                return Ok(Slot::Failed(key, failure(retry)));
            }
            self.wrote(format!("text of PE {id}"))?;
        }
        // The work is forgotten once its texts are seen; a text that is deleted later is written again.
        Ok(Slot::Idle)
    }

    fn compile(&mut self, key: &Compilation) -> Result<Option<Compiled>, Crashed> {
        let base = self.status.plan.as_ref().map(|plan| self.plans[&plan.sha256].clone());
        let widths: BTreeMap<String, u32> = match &key.target {
            Target::Submission { .. } => REGIONS.iter().map(|name| ((*name).to_owned(), 2)).collect(),
            Target::Resize { widths } => widths.clone(),
        };
        let (wanted, layout) = self.layout(key, base.as_ref(), &widths);
        let digest = format!("{:0>10}{}", self.plans.len(), "0".repeat(54));
        let known = self.plans.iter().find(|(_, (known, _))| **known == wanted).map(|(sha256, _)| sha256.clone());
        let sha256 = known.unwrap_or(digest);
        let plan = StoredPlan {
            generation: key.generation,
            sha256: sha256.clone(),
            chunks: 2,
            compiler: self.compiler.clone(),
        };
        self.plans.insert(sha256.clone(), (Arc::new(wanted), layout));
        if !self.write_plan(&plan)? {
            return Ok(None);
        }
        let wanted = Arc::clone(&self.plans[&sha256].0);
        self.memory.plans.insert(sha256, wanted);
        Ok(Some(Compiled { plan, widths }))
    }

    /// What the compiler makes of it: a source, a sink, a PE per channel, and two that never restart.
    fn layout(
        &self,
        key: &Compilation,
        base: Option<&(Arc<Wanted>, Layout)>,
        widths: &BTreeMap<String, u32>,
    ) -> (Wanted, Layout) {
        let generation = key.generation;
        let old = base.map(|(_, layout)| layout.clone()).unwrap_or_default();
        let base = base.map(|(wanted, _)| wanted);
        // Ids of objects that still exist.
        let existing = self.children.processing_elements.keys().copied();
        let in_use: BTreeSet<u64> =
            existing.chain(base.iter().flat_map(|wanted| wanted.processing_elements.keys().copied())).collect();
        let mut layout = Layout::default();
        let mut fresh = (BLIND + 1..).filter(|id| !in_use.contains(id));
        for name in REGIONS {
            for channel in 0..widths[name] {
                let id = old.channels.get(&(name, channel)).copied().or_else(|| fresh.next()).unwrap();
                layout.channels.insert((name, channel), id);
                layout.observable.insert(id, format!("{name}{channel}"));
            }
        }
        let all = format!("{widths:?}");
        layout.observable.insert(SOURCE, all.clone());
        layout.observable.insert(SINK, all.clone());
        layout.observable.insert(ALOOF, "aloof".to_owned());
        layout.observable.insert(BLIND, "blind".to_owned());
        let mut fates = Fates::default();
        let pe = |id: &u64| {
            let hidden = if *id == BLIND { all.as_str() } else { "" };
            let text = |observable: &str, origin: u64, hidden: &str| {
                // The digest of the text names its ConfigMap; another compiler writes it in another way.
                let config_map = format!("job-{id}-{observable}-{hidden}-{}", self.compiler);
                Text { processing_element: format!("{origin}/{config_map}"), config_map }
            };
            let kept = base.filter(|_| old.observable.get(id) == layout.observable.get(id));
            let kept = kept.and_then(|wanted| wanted.processing_elements.get(id));
            let existed = base.is_some_and(|wanted| wanted.processing_elements.contains_key(id));
            let origin = kept.map_or(generation, |pe| pe.origin);
            let now = text(&layout.observable[id], origin, hidden);
            let carried =
                kept.map(|pe| pe.carried.clone().unwrap_or_else(|| pe.text.clone())).filter(|text| *text != now);
            let wanted =
                WantedPe { origin, restartable: *id != ALOOF, text: now, carried, service: format!("service {id}") };
            (wanted, kept.is_some(), existed)
        };
        let mut processing_elements = BTreeMap::new();
        for id in layout.observable.keys() {
            let (wanted, kept, existed) = pe(id);
            match (kept, existed) {
                (true, _) => fates.kept += 1,
                (false, true) => fates.restarted += 1,
                (false, false) => fates.added += 1,
            }
            processing_elements.insert(*id, wanted);
        }
        if let Some(base) = base {
            let gone = base.processing_elements.keys().filter(|id| !processing_elements.contains_key(id));
            fates.removed = u32::try_from(gone.count()).unwrap();
        }
        let mut statistics = crate::api::Statistics::default();
        statistics.processing_elements = u32::try_from(processing_elements.len()).unwrap();
        statistics.aadl_bytes = self.compiler.parse().unwrap();
        let wanted = Wanted {
            generation,
            target: Some(key.target.clone()),
            widths: widths.clone(),
            processing_elements,
            regions: (0..).zip(REGIONS).map(|(index, name)| (index, name.to_owned())).collect(),
            host_pools: BTreeMap::from([(0, format!("pool {}", widths["R"]))]),
            fates,
            statistics,
            fusion: crate::api::ResolvedFusion::default(),
            warnings: Vec::new(),
        };
        (wanted, layout)
    }

    /// Whether texts of the proposal are being written.
    pub(super) fn publishing(&self) -> bool {
        matches!(self.memory.work.publish, Slot::Running(_))
    }

    /// Names of the texts that are being written.
    pub(super) fn texts_asked_for(&self) -> Vec<String> {
        let Slot::Running(publish) = &self.memory.work.publish else { return Vec::new() };
        let wanted = &self.plans[&publish.plan].0;
        publish.pe_ids.iter().map(|id| wanted.processing_elements[id].text.config_map.clone()).collect()
    }

    /// The PE controller: pods of committed generations are started.
    pub(super) fn run_pods(&mut self) -> bool {
        let Some(committed) = self.status.generation else { return false };
        let mut changed = false;
        for (id, pe) in &mut self.children.processing_elements {
            if pe.generation <= committed && !pe.object.deleting && pe.run == Run::Pending {
                pe.launched = true;
                pe.run = Run::Ready;
                *self.starts.entry(*id).or_default() += 1;
                changed = true;
            }
        }
        changed
    }

    /// The user.
    pub(super) fn resize(&mut self, index: u64, width: u32) {
        if let Some(region) = self.regions.get_mut(&index) {
            region.width = width;
        }
    }

    pub(super) fn edit(&mut self, inputs: &str, broken: bool) {
        assert!(self.status.generation.is_none(), "the schema refuses it");
        self.spec = (self.spec.0 + 1, inputs.to_owned());
        self.broken = broken;
    }

    pub(super) fn failed(&self) -> bool {
        self.status.phase == Some(JobPhase::Failed)
    }

    /// Everything runs until nothing happens any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            let before = (self.writes, self.memory.work.clone());
            let Ok(decision) = self.step(|_| true) else { continue };
            let Ok(worked) = self.finish_work(false) else { continue };
            let moved = self.run_pods() | self.collect();
            if worked || moved || before != (self.writes, self.memory.work.clone()) {
                continue;
            }
            match decision.wake_at.filter(|at| *at > self.now) {
                // What is waited for comes with time alone.
                Some(at) if decision.trouble.is_some() || self.status.generation.is_none() => self.now = at,
                _ => return,
            }
        }
        panic!(
            "it does not come to rest; the end of the log: {:#?}",
            self.log.iter().rev().take(30).collect::<Vec<_>>()
        );
    }

    /// What must hold when nothing happens any more.
    pub(super) fn check_at_rest(&mut self) {
        if self.failed() {
            assert!(self.children.only_chunks(), "nothing half-created stays: {:?}", self.children);
            assert!(self.children.chunks.is_empty() && self.regions.is_empty());
            return;
        }
        let observed = self.observe();
        let Some(Loaded::Whole(wanted)) = &observed.committed else {
            panic!("nothing is committed: {:?}", self.status)
        };
        assert_eq!(observed.desired_widths, wanted.widths, "what is desired is applied");
        assert_eq!(self.status.proposal, None);
        let children = &observed.children;
        let missing = |id: &&u64| !children.processing_elements.contains_key(id);
        let missing: Vec<_> = wanted.processing_elements.keys().filter(missing).collect();
        assert!(missing.iter().all(|id| **id == ALOOF), "only what is not restartable may be missing: {missing:?}");
        for (id, pe) in &children.processing_elements {
            let expected = wanted.processing_elements.get(id).unwrap_or_else(|| panic!("PE {id} is left over"));
            assert_eq!(Some(&pe.object.applied), expected.choose(children).map(|t| &t.processing_element), "PE {id}");
            assert_eq!(pe.run, Run::Ready, "PE {id}");
        }
        assert!(children.services.keys().eq(wanted.processing_elements.keys()));
        assert!(children.host_pools.iter().map(|(i, o)| (i, &o.applied)).eq(wanted.host_pools.iter()));
        assert!(self.regions.keys().eq(wanted.regions.keys()));
        assert_eq!(children.job_config_map.as_ref().map(|o| o.applied.clone()), Some(labels(&self.status)));
        for name in children.texts.keys() {
            let texts = wanted.processing_elements.values().flat_map(|pe| [Some(&pe.text), pe.carried.as_ref()]);
            assert!(texts.flatten().any(|text| text.config_map == *name), "text {name} is left over");
        }
        assert_eq!(children.chunks.len(), 3, "the chunks of the ADL and of the plan: {:?}", children.chunks);
        let condition = |kind| crate::api::condition::is_true(&self.status.conditions, kind);
        assert!(condition("Submitted"), "{:?}", self.status.conditions);
        assert_eq!(condition("Ready"), missing.is_empty());
        assert_eq!(condition("Degraded"), !missing.is_empty());
        assert!(!condition("Progressing"));
        let rollout = self.status.rollout.as_ref().unwrap();
        assert!(rollout.finished_at.is_some() && rollout.pending == 0);
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

fn failure(remedy: Remedy) -> Failure {
    Failure { remedy, reason: "Broken".to_owned(), message: "it is broken".to_owned(), stage: None, code: None }
}
