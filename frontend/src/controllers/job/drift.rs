//! Compares the objects of a job with what was applied last (rules job-26 and call-19).
//!
//! What was applied is not kept. An object says by a hash which desired state was applied to it last; this state is
//! made again, from the generation that wants it, and the object must have it. An object with another hash than any
//! generation wants is applied anyway and not compared.
//!
//! Knows: objects as they should be, objects as mirrors show them. Must not know: what follows from a difference.

use super::MANAGER;
use super::child::{Child, Port};
use super::children::{COMPRESSED_ABOVE, ChildBuilder, StoredText, TextVersion};
use super::chunks::{Document, shape};
use super::generation::{Generation, Origin};
use super::mirrored::{MirroredChildren, Shown};
use super::observed::{DesiredGeneration, DesiredPe, TextReference};
use super::owned::Owned;
use super::snapshot::JobSnapshot;
use super::user_ports::UserPorts;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use streams_api::{ConsistentRegion, Export, HostPool, Import, ParallelRegion, ProcessingElement, names};
use streams_kubernetes::Error;
use streams_kubernetes::cluster::Object;
use streams_kubernetes::drift;
use streams_kubernetes::watch::{ConfigMapMeta, Mirrored};
use streams_proto::fusion::v1::{ParallelRegion as PlannedRegion, Plan, ProcessingElement as Planned};

/// Objects that agreed when they were compared last, each as the number that stands for its uid, version and hash
/// ([`Shown::fingerprint`]). So an object is compared once for each of its versions.
pub(crate) type Agreed = HashSet<u64>;

/// A difference between an object and what was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) field: String,
    pub(super) of_content: bool,
}

/// What the objects are compared with.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) snapshot: JobSnapshot,
    /// What is wanted for the committed and the proposed generation of the snapshot.
    pub(super) generations: [Option<Arc<DesiredGeneration>>; 2],
    /// Hash of the job's ConfigMap as it should be.
    pub(super) job_config_map: String,
    /// Ports of Services that operators have opened under a name.
    pub(super) user_ports: UserPorts,
}

/// The differences, and which objects agree.
///
/// # Errors
/// An object cannot be written as JSON, which is not possible for these types.
pub(super) fn differences(
    wanted: &Wanted,
    objects: &MirroredChildren,
    agreed: &Agreed,
) -> Result<(BTreeMap<Owned, Difference>, Agreed), Error> {
    let (parts, agree, found) = (OnceCell::new(), Agreed::new(), BTreeMap::new());
    let mut comparison = Comparison { wanted, parts, agreed, agree, found };
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
        comparison.compare(owned, service, Wanted::consistent_region_service)?;
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
    Ok((comparison.found, comparison.agree))
}

struct Comparison<'a> {
    wanted: &'a Wanted,
    parts: OnceCell<Parts>,
    agreed: &'a Agreed,
    agree: Agreed,
    found: BTreeMap<Owned, Difference>,
}

impl Comparison<'_> {
    /// Compares an object that was applied. `desired` makes the desired state with a hash, if there is one.
    fn compare<K: Object, M: Mirrored, O>(
        &mut self,
        owned: Owned,
        existing: &Shown<M, O>,
        desired: impl FnOnce(&Wanted, &str) -> Option<K>,
    ) -> Result<(), Error> {
        let field = match &existing.applied {
            _ if self.agreed.contains(&existing.fingerprint) => None,
            None => Some(format!("metadata.annotations.{}", names::ANNOTATION_APPLIED_HASH)),
            Some(hash) => match desired(self.wanted, hash).zip(existing.object.read()) {
                Some((desired, existing)) => drift::difference(MANAGER, &desired, &*existing)?,
                None => return Ok(()),
            },
        };
        self.note(owned, existing.fingerprint, field);
        Ok(())
    }

    /// A region is created, not applied, and its width belongs to users.
    fn region(&mut self, index: u64, existing: &Shown<ParallelRegion>) -> Result<(), Error> {
        let owned = Owned::Child(Child::Region(index));
        let mut field = None;
        if !self.agreed.contains(&existing.fingerprint) {
            let Some((plan, region)) = self.wanted.region(index) else { return Ok(()) };
            let Some(mirrored) = existing.object.read() else { return Ok(()) };
            let fields = region_fields(&self.wanted.snapshot.builder(), plan, region, true);
            field = drift::difference_of_fields::<ParallelRegion, _>(&fields, &*mirrored)?;
        }
        self.note(owned, existing.fingerprint, field);
        Ok(())
    }

    /// A ConfigMap that is named after its content is created, not applied.
    fn content(&mut self, name: &str, existing: &Shown<ConfigMapMeta>) -> Result<(), Error> {
        let owned = Owned::ConfigMap(name.to_owned());
        let mut field = None;
        if !self.agreed.contains(&existing.fingerprint) {
            let parts = self.parts.get_or_init(|| {
                let generations = self.wanted.generations().map(|(generation, _)| generation);
                Parts::of(&self.wanted.snapshot, generations)
            });
            let Some(desired) = parts.config_map(&self.wanted.snapshot, name) else { return Ok(()) };
            let Some(mirrored) = existing.object.read() else { return Ok(()) };
            field = drift::difference(MANAGER, &desired, &*mirrored)?;
        }
        self.note(owned, existing.fingerprint, field);
        Ok(())
    }

    fn note(&mut self, owned: Owned, fingerprint: u64, field: Option<String>) {
        match field {
            None => {
                self.agree.insert(fingerprint);
            }
            Some(field) => {
                let of_content = matches!(owned, Owned::ConfigMap(_)) && !field.starts_with("metadata.");
                self.found.insert(owned, Difference { field, of_content });
            }
        }
    }
}

/// What of a region the controller sets. `with_owner`: as a whole, to be compared; without the owner, to be restored.
pub(super) fn region_fields(
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
pub(super) fn config_map(snapshot: &JobSnapshot, name: &str) -> Option<ConfigMap> {
    let generations = [&snapshot.committed, &snapshot.proposed];
    Parts::of(snapshot, generations.into_iter().flatten().map(|generation| &**generation)).config_map(snapshot, name)
}

impl Wanted {
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
            let text = if *size > COMPRESSED_ABOVE {
                StoredText::Compressed(Vec::new())
            } else {
                StoredText::Plain(String::new())
            };
            return Some(snapshot.builder().text(*pe_id, content_id, text));
        }
        let (document, sha256, index, count) = self.chunks.get(name)?;
        Some(shape(document, &snapshot.owner, sha256, *index, *count))
    }
}
