//! Compares the objects of a job with what was applied last (rules job-26 and call-19).
//!
//! What was applied is not kept, but for its hash. An object has an annotation with the hash of the desired state that
//! was applied to it last; this state is made again, from the generation that wants it, and the object must have it.
//!
//! Others can change that annotation as well. So if it names no state that a generation wants, what was applied last is
//! what this process knows of the object. If a generation wants that, somebody has changed the annotation, like any
//! other field. If none does, or nothing is known, the object is behind: it is applied anyway, and not compared.
//!
//! Knows: objects as they should be, objects as mirrors show them. Must not know: what follows from a difference.

use super::compared::{Compared, KnownObject};
use super::mirrored::{MirroredChildren, Shown};
use super::snapshot::JobSnapshot;
use super::{DesiredGeneration, DesiredPe, ObservedRegion, TextReference};
use crate::controllers::job::MANAGER;
use crate::controllers::job::child::{Child, Port};
use crate::controllers::job::documents::chunks::{Document, shape};
use crate::controllers::job::generation::{Generation, Origin};
use crate::controllers::job::objects::user_ports::UserPorts;
use crate::controllers::job::objects::{ChildBuilder, StoredText, TextVersion};
use crate::controllers::job::owned::Owned;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::drift;
use streams_kubernetes::watch::{ConfigMapMeta, Mirrored};
use streams_proto::fusion::v1::{ParallelRegion as PlannedRegion, Plan, ProcessingElement as Planned};

/// A difference between an object and what was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Difference {
    pub(in super::super) field: String,
    pub(in super::super) of_content: bool,
    /// Hash of what was applied, if the object says another one, or none.
    pub(in super::super) applied: Option<Arc<str>>,
}

/// What the objects are compared with.
#[derive(Clone)]
pub(in super::super) struct WantedObjects {
    pub(in super::super) snapshot: JobSnapshot,
    /// What is wanted for the committed and the proposed generation of the snapshot.
    pub(in super::super) generations: [Option<Arc<DesiredGeneration>>; 2],
    /// Hash of the job's ConfigMap as it should be.
    pub(in super::super) job_config_map: String,
    /// Ports of Services that operators have opened under a name.
    pub(in super::super) user_ports: UserPorts,
}

/// The differences, and what is known of the objects from now on. `before`: what was known; `written`: the hashes of
/// what was applied to objects since.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for these types.
pub(in super::super) fn differences(
    wanted: &WantedObjects,
    objects: &MirroredChildren,
    before: &Compared,
    written: &BTreeMap<Owned, Arc<str>>,
) -> Result<(BTreeMap<Owned, Difference>, Compared), Error> {
    let (parts, known, found) = (OnceCell::new(), Vec::with_capacity(before.len()), BTreeMap::new());
    let mut comparison = Comparison { wanted, parts, before, written, known, found };
    for (id, pe) in &objects.processing_elements {
        comparison
            .compare(Owned::Child(Child::ProcessingElement(*id)), pe, |it, hash| it.processing_element(*id, hash))?;
    }
    for (id, service) in &objects.services {
        comparison.compare(Owned::Child(Child::Service(*id)), service, |it, hash| it.service(*id, hash))?;
    }
    for (index, pool) in &objects.host_pools {
        comparison.compare(Owned::Child(Child::HostPool(*index)), pool, |it, hash| it.host_pool(*index, hash))?;
    }
    for (port, export) in &objects.exports {
        comparison.compare(Owned::Child(Child::Export(*port)), export, |it, hash| it.export(*port, hash))?;
    }
    for (port, import) in &objects.imports {
        comparison.compare(Owned::Child(Child::Import(*port)), import, |it, hash| it.import(*port, hash))?;
    }
    for (index, region) in &objects.consistent_regions {
        let owned = Owned::Child(Child::ConsistentRegion(*index));
        comparison.compare(owned, region, |it, hash| it.consistent_region(*index, hash))?;
    }
    if let Some(service) = &objects.consistent_region_service {
        let owned = Owned::Child(Child::ConsistentRegionService);
        comparison.compare(owned, service, WantedObjects::consistent_region_service)?;
    }
    for (index, region) in &objects.regions {
        comparison.region(*index, region)?;
    }
    if let Some(map) = &objects.job_config_map {
        comparison.compare(Owned::Child(Child::JobConfigMap), map, |it, hash| {
            (hash == it.job_config_map).then(|| it.snapshot.builder().config_map(None, None))
        })?;
    }
    for (name, (_, map)) in &objects.config_maps {
        comparison.content(name, map)?;
    }
    Ok((comparison.found, Compared::of(comparison.known)))
}

struct Comparison<'a> {
    wanted: &'a WantedObjects,
    parts: OnceCell<Parts>,
    before: &'a Compared,
    written: &'a BTreeMap<Owned, Arc<str>>,
    known: Vec<KnownObject>,
    found: BTreeMap<Owned, Difference>,
}

impl Comparison<'_> {
    /// Compares an object that was applied. `desired` makes the desired state with a hash, if there is one.
    fn compare<K: Object, M: Mirrored, O>(
        &mut self,
        owned: Owned,
        existing: &Shown<M, O>,
        desired: impl Fn(&WantedObjects, &str) -> Option<K>,
    ) -> Result<(), Error> {
        if self.is_known_to_agree(existing) {
            return Ok(());
        }
        let said = existing.applied.as_ref();
        if let Some((hash, state)) = said.and_then(|hash| Some((hash, desired(self.wanted, hash)?))) {
            let Some(mirrored) = existing.object.read() else { return Ok(()) };
            let field = drift::difference(MANAGER, &state, &*mirrored)?;
            self.note(owned, existing, Some(hash), field);
            return Ok(());
        }
        let before = || self.before.get(existing.number).and_then(KnownObject::applied).map(Arc::from);
        let Some(applied) = self.written.get(&owned).cloned().or_else(before) else { return Ok(()) };
        let is_wanted = desired(self.wanted, &applied).is_some();
        self.known.push(KnownObject::new(existing.number, None, Some(&applied)));
        // One that is behind is that for what it was made for, whoever has changed it since.
        if is_wanted {
            let field = format!("metadata.annotations.{}", names::ANNOTATION_APPLIED_HASH);
            self.found.insert(owned, Difference { field, applied: Some(applied), ..Difference::default() });
        }
        Ok(())
    }

    /// Whether it agreed in this version. Then all that is known of it stays so.
    fn is_known_to_agree<M, O>(&mut self, existing: &Shown<M, O>) -> bool {
        let known = self.before.get(existing.number).filter(|known| known.has_agreed(existing.fingerprint));
        self.known.extend(known.cloned());
        known.is_some()
    }

    /// A region is created, not applied, and its width belongs to users.
    fn region(&mut self, index: u64, existing: &Shown<ParallelRegion, ObservedRegion>) -> Result<(), Error> {
        if self.is_known_to_agree(existing) {
            return Ok(());
        }
        let Some((plan, region)) = self.wanted.region(index) else { return Ok(()) };
        let Some(mirrored) = existing.object.read() else { return Ok(()) };
        let fields = region_fields(&self.wanted.snapshot.builder(), plan, region, true);
        let field = drift::difference_of_fields::<ParallelRegion, _>(&fields, &*mirrored)?;
        self.note(Owned::Child(Child::Region(index)), existing, None, field);
        Ok(())
    }

    /// A ConfigMap that is named after its content is created, not applied.
    fn content(&mut self, name: &str, existing: &Shown<ConfigMapMeta>) -> Result<(), Error> {
        if self.is_known_to_agree(existing) {
            return Ok(());
        }
        let parts = self.parts.get_or_init(|| {
            let generations = self.wanted.generations().map(|(generation, _)| generation);
            Parts::of(&self.wanted.snapshot, generations)
        });
        let Some(desired) = parts.config_map(&self.wanted.snapshot, name) else { return Ok(()) };
        let Some(mirrored) = existing.object.read() else { return Ok(()) };
        let field = drift::difference(MANAGER, &desired, &*mirrored)?;
        self.note(Owned::ConfigMap(name.to_owned()), existing, None, field);
        Ok(())
    }

    /// The object was compared, with the state that has this hash if it has one.
    fn note<M, O>(&mut self, owned: Owned, existing: &Shown<M, O>, hash: Option<&Arc<str>>, field: Option<String>) {
        let agreed = field.is_none().then_some(existing.fingerprint);
        if agreed.is_some() || hash.is_some() {
            self.known.push(KnownObject::new(existing.number, agreed, hash.map(|hash| &**hash)));
        }
        if let Some(field) = field {
            let of_content = matches!(owned, Owned::ConfigMap(_)) && !field.starts_with("metadata.");
            self.found.insert(owned, Difference { field, of_content, applied: None });
        }
    }
}

/// What of a region the controller sets. `with_owner`: as a whole, to be compared; without the owner, to be restored.
pub(in super::super) fn region_fields(
    builder: &ChildBuilder<'_>,
    plan: &Plan,
    region: &PlannedRegion,
    with_owner: bool,
) -> Value {
    let desired = builder.region(plan, region);
    let mut fields = json!({
        "metadata": {"labels": desired.metadata.labels, "annotations": desired.metadata.annotations},
        "spec": {"jobName": desired.spec.job_name, "index": desired.spec.index, "name": desired.spec.name},
    });
    if with_owner {
        fields["metadata"]["ownerReferences"] = json!(desired.metadata.owner_references);
    }
    fields
}

/// The ConfigMap with a text or a chunk of this name as it should be but for its content.
pub(in super::super) fn config_map(snapshot: &JobSnapshot, name: &str) -> Option<ConfigMap> {
    let generations = [&snapshot.committed, &snapshot.proposed];
    Parts::of(snapshot, generations.into_iter().flatten().map(|generation| &**generation)).config_map(snapshot, name)
}

impl WantedObjects {
    fn generations(&self) -> impl Iterator<Item = (&Generation, &DesiredGeneration)> {
        let stored = [&self.snapshot.committed, &self.snapshot.proposed];
        stored
            .into_iter()
            .zip(&self.generations)
            .filter_map(|(stored, wanted)| Some((stored.as_deref()?, wanted.as_deref()?)))
    }

    fn members(&self, id: u64) -> impl Iterator<Item = (&Generation, &DesiredPe, &Planned, &Origin)> {
        self.generations().filter_map(move |(generation, wanted)| {
            let (pe, origin) = generation.member(id)?;
            Some((generation, wanted.processing_elements.get(&id)?, pe, origin))
        })
    }

    fn processing_element(&self, id: u64, hash: &str) -> Option<ProcessingElement> {
        self.members(id).find_map(|(generation, wanted, pe, origin)| {
            let newest = (TextVersion::Newest, Some(&wanted.text));
            let versions = [newest, (TextVersion::Origin, wanted.carried.as_ref())];
            let is_it = |text: Option<&TextReference>| text.is_some_and(|text| text.processing_element == hash);
            let (version, _) = versions.into_iter().find(|(_, text)| is_it(*text))?;
            Some(self.snapshot.builder().processing_element(generation, pe, origin, version))
        })
    }

    fn service(&self, id: u64, hash: &str) -> Option<Service> {
        let mut members = self
            .members(id)
            .filter(|(generation, wanted, ..)| self.user_ports.service(generation.number, id, &wanted.service) == hash);
        let (generation, _, pe, _) = members.next()?;
        Some(self.snapshot.builder().service(&generation.plan, pe, self.user_ports.of(id)))
    }

    fn host_pool(&self, index: u64, hash: &str) -> Option<HostPool> {
        let mut generations =
            self.generations().filter(|(_, wanted)| wanted.host_pools.get(&index).is_some_and(|of| of == hash));
        let (generation, _) = generations.next()?;
        let pool = generation.plan.host_pools.iter().find(|pool| pool.index == index)?;
        Some(self.snapshot.builder().host_pool(generation, pool))
    }

    fn region(&self, index: u64) -> Option<(&Plan, &PlannedRegion)> {
        self.generations().find_map(|(generation, _)| {
            let plan = &generation.plan;
            Some((plan, plan.parallel_regions.iter().find(|region| region.index == index)?))
        })
    }

    /// The generation that wants this export, import, consistent region or Service with this hash.
    fn interface(&self, child: Child, hash: &str) -> Option<&Generation> {
        let mut generations =
            self.generations().filter(|(_, wanted)| wanted.interfaces.get(&child).is_some_and(|of| of == hash));
        generations.next().map(|(generation, _)| generation)
    }

    fn export(&self, port: Port, hash: &str) -> Option<Export> {
        let generation = self.interface(Child::Export(port), hash)?;
        let planned = generation.member(port.pe)?.0.exports.iter().find(|export| export.port_id == port.id)?;
        Some(self.snapshot.builder().export(generation, port, planned))
    }

    fn import(&self, port: Port, hash: &str) -> Option<Import> {
        let generation = self.interface(Child::Import(port), hash)?;
        let planned = generation.member(port.pe)?.0.imports.iter().find(|import| import.port_id == port.id)?;
        Some(self.snapshot.builder().import(generation, port, planned))
    }

    fn consistent_region(&self, index: u64, hash: &str) -> Option<ConsistentRegion> {
        let plan = &self.interface(Child::ConsistentRegion(index), hash)?.plan;
        let planned = plan.consistent_regions.iter().find(|region| region.index == index)?;
        Some(self.snapshot.builder().consistent_region(plan, planned))
    }

    fn consistent_region_service(&self, hash: &str) -> Option<Service> {
        let plan = &self.interface(Child::ConsistentRegionService, hash)?.plan;
        Some(self.snapshot.builder().consistent_region_service(plan))
    }
}

/// Texts and chunks by name, without their content.
struct Parts {
    /// PE, content id and size of each text that a PE may refer to.
    texts: HashMap<String, (u64, String, u64)>,
    /// Document, digest, index and number of chunks.
    chunks: HashMap<String, (Document, String, u32, u32)>,
}

impl Parts {
    fn of<'a>(snapshot: &JobSnapshot, generations: impl Iterator<Item = &'a Generation>) -> Self {
        let job = &snapshot.key.name;
        let mut texts = HashMap::new();
        for generation in generations {
            for (pe, origin) in generation.members() {
                for (content_id, size) in [(&pe.content_id, pe.size), (&origin.content_id, origin.size)] {
                    let name = names::aadl_config_map(job, pe.id, content_id);
                    texts.insert(name, (pe.id, content_id.clone(), size));
                }
            }
        }
        let mut chunks = HashMap::new();
        let mut insert = |document: Document, sha256: &str, count: u32| {
            for index in 0..count {
                let name = document.chunk_name(job, sha256, index);
                chunks.insert(name, (document.clone(), sha256.to_owned(), index, count));
            }
        };
        if let Some(status) = &snapshot.job.status {
            if let Some(adl) = &status.adl {
                insert(Document::Adl, &adl.sha256, adl.chunks);
            }
            for plan in status.plan.iter().chain(status.proposal.as_ref().map(|proposal| &proposal.plan)) {
                insert(Document::Plan { generation: plan.generation }, &plan.sha256, plan.chunks);
            }
        }
        Self { texts, chunks }
    }

    /// The ConfigMap of this name as it should be, with keys in place of content.
    fn config_map(&self, snapshot: &JobSnapshot, name: &str) -> Option<ConfigMap> {
        if let Some((pe_id, content_id, size)) = self.texts.get(name) {
            return Some(snapshot.builder().text(*pe_id, content_id, StoredText::without_content(*size)));
        }
        let (document, sha256, index, count) = self.chunks.get(name)?;
        Some(shape(document, &snapshot.owner, sha256, *index, *count))
    }
}
