//! Long work of jobs: fetching, compiling, writing texts. Done by queued workers, never inside a reconcile.
//!
//! Each function may be ended at any moment and done again: what it writes is named by its content and found again. Results are handed to the
//! reconciler, which alone writes the status; after a crash they are found out anew.
//!
//! Knows: bundles, the fusion service, chunks, texts. Must not know: when any of it is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node},
    jiff::Timestamp,
};
use kube::{Api, Client, api::ListParams};
use streams_proto::fusion::v1::{
    Blob, Compilation, Fate, Plan, RegionWidth, RenderRequest, ResizeRequest, SubmitRequest,
};

use crate::{
    api::{Job, StoredAdl, StoredPlan, names},
    bundles::{self, Fetcher},
    fusion,
    kubernetes::{self, apply::create_or_match, error::absent},
    settings::JobSettings,
};

use super::{
    children::{Family, OBJECT_BYTES, StoredText},
    chunks::{self, Document, Incomplete},
    compilation,
    generation::{Generation, Target},
    observed::{Compiled, Failure, Publish, Remedy},
};

/// Owner of what long work writes.
const FIELD_MANAGER: &str = "streams-job-work";
/// Largest ADL that is read back (the compiler's own limit).
const ADL_BYTES: u64 = 64 << 20;
/// Largest stored generation that is read back.
pub(crate) const GENERATION_BYTES: u64 = 512 << 20;
/// Wait after the first transient failure; doubled up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Nodes in one page.
const PAGE: u32 = 500;

/// What long work needs.
#[derive(Clone)]
pub(crate) struct Tools {
    /// Kubernetes.
    pub(crate) client: Client,
    /// The fusion service.
    pub(crate) fusion: fusion::Client,
    /// Bundles.
    pub(crate) bundles: Fetcher,
    /// Options.
    pub(crate) settings: JobSettings,
}

/// What to compile from, beside the job.
#[derive(Clone, Debug)]
pub(crate) struct From<'a> {
    /// The generation to resize; none for a submission.
    pub(crate) previous: Option<&'a Generation>,
    /// Ids of PE objects that exist.
    pub(crate) pe_ids_in_use: Vec<u64>,
}

/// A failure that only a change by somebody can mend.
fn correct(reason: &str, message: impl Into<String>) -> Failure {
    Failure { remedy: Remedy::Correct, reason: reason.to_owned(), message: message.into(), stage: None, code: None }
}

/// A failure that may go away; `failures` is how often it happened before.
fn retry(reason: &str, message: impl Into<String>, failures: u32) -> Failure {
    let wait = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
    let at = Timestamp::now().checked_add(wait).unwrap_or(Timestamp::MAX);
    Failure { remedy: Remedy::Retry(at), ..correct(reason, message) }
}

fn of_kubernetes(error: &kubernetes::Error, failures: u32) -> Failure {
    if error.is_permanent() {
        correct("WriteRefused", error.to_string())
    } else {
        retry("KubernetesUnavailable", error.to_string(), failures)
    }
}

fn of_fusion(error: fusion::Error, failures: u32) -> Failure {
    let message = error.to_string();
    match error {
        fusion::Error::Rejected { stage, code, .. } => {
            Failure { stage: Some(stage), code, ..correct("CompilationFailed", message) }
        }
        fusion::Error::LayoutRejected(_) => correct("LayoutRejected", message),
        fusion::Error::OtherCompiler(_) => Failure { remedy: Remedy::Recompile, ..correct("OtherCompiler", message) },
        _ => retry("FusionUnavailable", message, failures),
    }
}

impl Tools {
    /// Fetches the bundle that the job names, and writes its ADL in chunks.
    pub(crate) async fn fetch(&self, job: &Job, failures: u32) -> Result<StoredAdl, Failure> {
        let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
        let application = self.bundles.fetch(&job.spec.bundle, namespace, &self.client).await;
        let application = application.map_err(|error| match &error {
            bundles::Error::Permanent { reason, message } => correct(reason, message),
            bundles::Error::Transient { reason, message } => retry(reason, message, failures),
        })?;
        let size = application.adl.len() as u64;
        let cut = self.store(job, &Document::Adl, application.adl, failures).await?;
        Ok(StoredAdl {
            sha256: cut.sha256.clone(),
            chunks: cut.count(),
            size,
            sab_name: application.sab_name,
            spec_generation: job.metadata.generation.unwrap_or(0),
        })
    }

    /// Compiles for `target`, and writes the plan in chunks.
    pub(crate) async fn compile(
        &self,
        job: &Job,
        target: Target,
        from: From<'_>,
        failures: u32,
    ) -> Result<(Generation, Compiled), Failure> {
        let status = job.status.clone().unwrap_or_default();
        let (Some(adl), Some(job_id)) = (&status.adl, status.job_id) else {
            return Err(retry("NotPrepared", "the job has no ADL or no id yet", failures));
        };
        let content = self.adl(job, adl, failures).await?;
        let (compilation, plan, warnings) = match (&target, from.previous) {
            (Target::Resize { widths }, Some(previous)) => {
                let compilation = compilation::repeated(previous);
                let request = ResizeRequest {
                    compilation: Some(with_content(compilation.clone(), &content)),
                    layout: Some(layout(&previous.plan)),
                    widths: region_widths(widths),
                    pe_ids_in_use: from.pe_ids_in_use,
                    ..ResizeRequest::default()
                };
                let answer = self.fusion.resize(request).await.map_err(|error| of_fusion(error, failures))?;
                (compilation, answer.plan, answer.warnings)
            }
            (Target::Submission { .. }, _) => {
                // Rounded to thousandths by the contract; the option is between 0 and 1.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1000")]
                let share = (self.settings.cpu_share * 1000.0).round() as u32;
                let automatic = compilation::automatic(&job.spec, None, share);
                let sha256 = Bytes::from(hex::decode(&adl.sha256).unwrap_or_default());
                let compilation = compilation::compilation(job, job_id, sha256, automatic);
                let request = SubmitRequest { compilation: Some(with_content(compilation.clone(), &content)) };
                let answer = self.fusion.submit(request).await.map_err(|error| of_fusion(error, failures))?;
                (compilation, answer.plan, answer.warnings)
            }
            (Target::Resize { .. }, None) => {
                return Err(retry("NotPrepared", "the running generation is not known", failures));
            }
        };
        let plan =
            plan.ok_or_else(|| retry("FusionUnavailable", "the fusion service answered without a plan", failures))?;
        self.check_size(&plan)?;
        let nodes = self.nodes_of(&plan, from.previous, failures).await?;
        let generation = Generation::following(from.previous, target, compilation, plan, nodes, warnings);
        let number = generation.number;
        let widths = generation.widths();
        let compiler = generation.plan.compiler.clone();
        let document = Document::Plan { generation: number };
        let cut = self.store(job, &document, Bytes::from(generation.encode()), failures).await?;
        let plan = StoredPlan { generation: number, sha256: cut.sha256.clone(), chunks: cut.count(), compiler };
        Ok((generation, Compiled { plan, widths }))
    }

    /// Writes the texts of some PEs of a generation.
    pub(crate) async fn publish(
        &self,
        job: &Job,
        generation: &Generation,
        publish: &Publish,
        failures: u32,
    ) -> Result<(), Failure> {
        let Some(adl) = job.status.as_ref().and_then(|status| status.adl.as_ref()) else {
            return Err(retry("NotPrepared", "the job has no ADL yet", failures));
        };
        let content = self.adl(job, adl, failures).await?;
        let planned: BTreeMap<u64, _> = generation.members().map(|(pe, _)| (pe.id, pe)).collect();
        let request = RenderRequest {
            compilation: Some(with_content(generation.compilation.clone(), &content)),
            layout: Some(layout(&generation.plan)),
            compiler: generation.plan.compiler.clone(),
            pe_ids: publish.pe_ids.clone(),
        };
        let api = self.config_maps(job);
        let owner = kubernetes::apply::controlled_by(job);
        let family =
            Family { owner: &owner, job_id: generation.compilation.job_id, spec: &job.spec, sab_name: &adl.sab_name };
        let mut texts = self.fusion.render(request);
        while let Some(text) = texts.next().await {
            let text = text.map_err(|error| of_fusion(error, failures))?;
            let pe = planned.get(&text.pe_id).filter(|pe| pe.content_id == text.content_id);
            let Some(pe) = pe else {
                // The plan says another text: it was made by a compiler that calls itself by the same version.
                let message = format!("the AADL of PE {} is not the planned one", text.pe_id);
                return Err(Failure { remedy: Remedy::Recompile, ..correct("OtherCompiler", message) });
            };
            let stored = StoredText::of(&text.text);
            let stored =
                stored.ok_or_else(|| correct("AadlInvalid", format!("the AADL of PE {} is no text", pe.id)))?;
            if stored.len() > OBJECT_BYTES {
                return Err(correct("AadlTooLarge", too_large(generation, pe.id, pe.size, stored.len())));
            }
            let object = family.text(pe.id, &text.content_id, stored);
            let same = |existing: &ConfigMap| {
                annotation(existing, names::ANNOTATION_CONTENT_ID) == Some(text.content_id.as_str())
            };
            create_or_match(&api, FIELD_MANAGER, &object, same)
                .await
                .map_err(|error| of_kubernetes(&error, failures))?;
        }
        Ok(())
    }

    /// Reads a stored generation. The inner error says what is lost.
    pub(crate) async fn load(&self, job: &Job, plan: &StoredPlan) -> Result<Result<Generation, String>, kube::Error> {
        let document = Document::Plan { generation: plan.generation };
        let content = self.read(job, &document, &plan.sha256, plan.chunks, GENERATION_BYTES).await?;
        Ok(match content {
            Ok(bytes) => Generation::decode(&bytes).map_err(|unreadable| unreadable.to_string()),
            Err(incomplete) => Err(incomplete.to_string()),
        })
    }

    /// Writes the chunks of a generation that is known again.
    pub(crate) async fn store_again(&self, job: &Job, generation: &Generation) -> Result<(), Failure> {
        let document = Document::Plan { generation: generation.number };
        self.store(job, &document, Bytes::from(generation.encode()), 0).await.map(drop)
    }

    /// The pinned ADL.
    async fn adl(&self, job: &Job, adl: &StoredAdl, failures: u32) -> Result<Bytes, Failure> {
        let content = self.read(job, &Document::Adl, &adl.sha256, adl.chunks, ADL_BYTES).await;
        let content = content.map_err(|error| retry("KubernetesUnavailable", error.to_string(), failures))?;
        let lost =
            |incomplete: Incomplete| retry("AdlLost", format!("the ADL of the job is lost: {incomplete}"), failures);
        content.map(Bytes::from).map_err(lost)
    }

    async fn read(
        &self,
        job: &Job,
        document: &Document,
        sha256: &str,
        chunks: u32,
        limit: u64,
    ) -> Result<Result<Vec<u8>, Incomplete>, kube::Error> {
        let api = self.config_maps(job);
        let job = job.metadata.name.as_deref().unwrap_or_default();
        let mut objects = Vec::new();
        for index in 0..chunks {
            let name = document.chunk_name(job, sha256, index);
            match absent(api.get(&name).await)? {
                Some(object) => objects.push(object),
                None => return Ok(Err(Incomplete::Missing(name))),
            }
        }
        Ok(chunks::join(sha256, &objects, limit))
    }

    async fn store(
        &self,
        job: &Job,
        document: &Document,
        content: Bytes,
        failures: u32,
    ) -> Result<chunks::Cut, Failure> {
        // Compressing a large plan takes a while: not on a thread that serves others.
        let cut = tokio::task::spawn_blocking(move || chunks::cut(&content)).await;
        let cut = cut.map_err(std::io::Error::from).flatten();
        let cut = cut.map_err(|error| retry("OutOfMemory", format!("cannot compress: {error}"), failures))?;
        let api = self.config_maps(job);
        for object in cut.config_maps(document, &kubernetes::apply::controlled_by(job)) {
            let same = |existing: &ConfigMap| existing.binary_data == object.binary_data;
            create_or_match(&api, FIELD_MANAGER, &object, same)
                .await
                .map_err(|error| of_kubernetes(&error, failures))?;
        }
        Ok(cut)
    }

    fn config_maps(&self, job: &Job) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), job.metadata.namespace.as_deref().unwrap_or_default())
    }

    /// Bytes that this generation would write are bounded (decisions, "aadl 10, sizes").
    fn check_size(&self, plan: &Plan) -> Result<(), Failure> {
        let new = plan.processing_elements.iter().filter(|pe| matches!(pe.fate(), Fate::Added | Fate::Restarted));
        let bytes: u64 = new.map(|pe| pe.size).fold(0, u64::saturating_add);
        let limit = self.settings.max_generation_mib.saturating_mul(1 << 20);
        if bytes > limit {
            let message = format!("the generation has {bytes} bytes of AADL to write, at most {limit} are allowed");
            return Err(correct("GenerationTooLarge", message));
        }
        Ok(())
    }

    /// Names of the nodes whose addresses the application places operators on.
    async fn nodes_of(
        &self,
        plan: &Plan,
        previous: Option<&Generation>,
        failures: u32,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let hosts = plan.processing_elements.iter().filter_map(|pe| pe.placement.as_ref()?.host.as_ref());
        let pools = plan.host_pools.iter().flat_map(|pool| &pool.hosts);
        let wanted: BTreeSet<&String> = hosts.chain(pools).filter(|host| host.parse::<IpAddr>().is_ok()).collect();
        let mut known: BTreeMap<String, String> = previous.map(|p| p.nodes.clone()).unwrap_or_default();
        known.retain(|address, _| wanted.contains(address));
        if wanted.iter().all(|address| known.contains_key(*address)) {
            return Ok(known);
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let mut parameters = ListParams::default().limit(PAGE);
        loop {
            let page = api.list(&parameters).await;
            let page = page.map_err(|error| retry("KubernetesUnavailable", error.to_string(), failures))?;
            for node in page.items {
                let name = node.metadata.name.unwrap_or_default();
                for address in node.status.and_then(|status| status.addresses).unwrap_or_default() {
                    if wanted.contains(&address.address) {
                        known.insert(address.address, name.clone());
                    }
                }
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters.continue_token = Some(token),
                None => break,
            }
        }
        match wanted.into_iter().find(|address| !known.contains_key(*address)) {
            Some(address) => Err(correct("HostUnknown", format!("no node has the address {address}"))),
            None => Ok(known),
        }
    }
}

/// What to say about a text that no object holds: with a number of PEs that would do, if texts were of equal size.
fn too_large(generation: &Generation, pe_id: u64, size: u64, stored: usize) -> String {
    let count = generation.members().count().max(1) as u64;
    let enough = count.saturating_mul((stored as u64).div_ceil(OBJECT_BYTES as u64)).saturating_add(1);
    format!(
        "the AADL of PE {pe_id} has {size} bytes, {stored} compressed, and a ConfigMap holds {OBJECT_BYTES}: \
         {enough} PEs instead of {count} would do"
    )
}

fn annotation<'a>(object: &'a ConfigMap, key: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn with_content(mut compilation: Compilation, adl: &Bytes) -> Compilation {
    if let Some(blob) = &mut compilation.adl {
        blob.content = Some(adl.clone());
    }
    compilation
}

fn layout(plan: &Plan) -> Blob {
    let sha256 = <sha2::Sha256 as sha2::Digest>::digest(&plan.layout);
    Blob { sha256: sha256.to_vec().into(), content: Some(plan.layout.clone()) }
}

fn region_widths(widths: &BTreeMap<String, u32>) -> Vec<RegionWidth> {
    widths.iter().map(|(region, width)| RegionWidth { region: region.clone(), width: (*width).into() }).collect()
}
