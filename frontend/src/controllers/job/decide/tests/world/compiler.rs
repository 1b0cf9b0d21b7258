//! What the fusion service makes of two regions: a source, a sink, a PE per channel, and two PEs that no width
//! restarts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Crashed, REGIONS, World};
use crate::controllers::job::{
    generation::Target,
    observed::{Effect, Text, Wanted, WantedPe},
    tasks::{CompileRequest, Compiled},
};
use streams_api::StoredPlan;

/// PEs that every generation has: source, sink, one that no width concerns, one whose text changes only where nobody
/// looks.
const SOURCE: u64 = 0;
const SINK: u64 = 1;
pub(super) const ALOOF: u64 = 2;
const BLIND: u64 = 3;

/// What the compiler remembers in its layout: PEs of channels, and what they were last started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout {
    channels: BTreeMap<(&'static str, u32), u64>,
    /// Observable text by PE.
    observable: BTreeMap<u64, String>,
}

impl World {
    pub(super) fn compile(&mut self, key: &CompileRequest) -> Result<Option<Compiled>, Crashed> {
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
        key: &CompileRequest,
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
        let mut effect = Effect::default();
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
                (true, _) => effect.kept += 1,
                (false, true) => effect.restarted += 1,
                (false, false) => effect.added += 1,
            }
            processing_elements.insert(*id, wanted);
        }
        if let Some(base) = base {
            let gone = base.processing_elements.keys().filter(|id| !processing_elements.contains_key(id));
            effect.removed = u32::try_from(gone.count()).unwrap();
        }
        let statistics = streams_api::Statistics {
            processing_elements: u32::try_from(processing_elements.len()).unwrap(),
            aadl_bytes: self.compiler.parse().unwrap(),
            ..streams_api::Statistics::default()
        };
        let wanted = Wanted {
            generation,
            target: Some(key.target.clone()),
            widths: widths.clone(),
            processing_elements,
            regions: (0..).zip(REGIONS).map(|(index, name)| (index, name.to_owned())).collect(),
            committed_regions: Vec::new(),
            host_pools: BTreeMap::from([(0, format!("pool {}", widths["R"]))]),
            effect,
            statistics,
            fusion: streams_api::ResolvedFusion::default(),
            warnings: Vec::new(),
        };
        (wanted, layout)
    }
}
