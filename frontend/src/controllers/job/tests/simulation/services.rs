//! The source of bundles and the fusion service. Their application has two regions with a PE for each channel, a
//! source, a sink that imports streams, and two PEs that no width restarts, in a consistent region. The channels of one
//! region, which each version of the application has, export streams.

use crate::bundles::{self, Application};
use crate::controllers::job::documents::chunks::digest;
use crate::controllers::job::services::{Bundles, Fusion};
use crate::fusion::{self, RenderedText};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use streams_api::BundleReference;
use streams_kubernetes::stopwatch;
use streams_kubernetes_fake::Server;
use streams_proto::fusion::v1::placement::Pool;
use streams_proto::fusion::v1::resize_response::Text;
use streams_proto::fusion::v1::{
    ChannelCount, ConsistentRegion, Export, Fate, HostPool, Import, ParallelRegion, Placement, Plan, PortLabel,
    ProcessingElement, RenderRequest, ResizeRequest, ResizeResponse, SubmitRequest, SubmitResponse,
};

/// PEs that every generation has: source, sink, one that no width concerns, and one whose text changes with every
/// width, but only where a running PE cannot look.
pub(super) const SOURCE: u64 = 0;
pub(super) const SINK: u64 = 1;
/// It must not be started again once a user has deleted it.
pub(in super::super) const NOT_RESTARTABLE: u64 = 2;
pub(in super::super) const SAME_TO_OBSERVERS: u64 = 3;

/// How the services are at the moment.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct ServiceState {
    /// Version of the compiler.
    pub(in super::super) compiler: String,
    /// The application does not compile.
    pub(in super::super) refuses: bool,
    /// The user says that nobody asks for numbers of channels.
    pub(in super::super) ignores: bool,
    /// The greatest width that compiles.
    pub(in super::super) widest: u32,
    /// The greatest width whose compilation ends.
    pub(in super::super) endless_above: u32,
    /// The greatest width with which the answer is not longer than the frontend reads.
    pub(in super::super) too_large_above: u32,
    /// Nothing answers.
    pub(in super::super) is_down: bool,
    /// Some replica has the compiler of the plan.
    pub(in super::super) renders: bool,
    /// Texts come with the answer to a resize.
    pub(in super::super) sends_texts: bool,
    /// They are others than the plan says.
    pub(in super::super) spoils_texts: bool,
    /// The server of bundles has none.
    pub(in super::super) has_no_bundle: bool,
    /// Which version of the bundle it has.
    pub(in super::super) bundle: u32,
    /// Which of the bundles with the same ADL that is.
    pub(in super::super) build: u32,
    /// Regions of the application in it, by index.
    pub(in super::super) regions: Vec<(u64, &'static str)>,
    /// Bundles are kept, whatever becomes of their server.
    pub(in super::super) keeps_bundles: bool,
    /// How long a compilation takes.
    pub(in super::super) seconds: u64,
    /// How long it waits for others before.
    pub(in super::super) queue_seconds: u64,
    /// Seconds that the download of a bundle takes.
    pub(in super::super) download_seconds: u64,
    /// PEs whose texts no replica renders, whatever is tried.
    pub(in super::super) refused_texts: BTreeSet<u64>,
    /// PEs whose pods the cluster refuses.
    pub(in super::super) refused_pods: BTreeSet<u64>,
    /// PEs that no width of `R` restarts are in the host pool, whose tags change with that width.
    pub(in super::super) places: bool,
    /// The compiler gives ids again that are in use: whoever lists them has not heard of all.
    pub(in super::super) gives_again: bool,
    /// PEs that the last resize was to put nothing new into.
    pub(in super::super) closed: Vec<u64>,
}

/// The services, and the cluster whose time passes while they work.
pub(in super::super) struct Services(Mutex<ServiceState>, Server);

/// What the compiler remembers in its layout.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Layout {
    widths: BTreeMap<String, u32>,
    /// PE by region and channel.
    channels: BTreeMap<String, u64>,
    texts: BTreeMap<u64, TextInputs>,
}

/// What the text of a PE is made of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TextInputs {
    observable: String,
    hidden: String,
}

impl TextInputs {
    fn text(&self, pe_id: u64, compiler: &str) -> String {
        let Self { observable, hidden } = self;
        format!("<pe id='{pe_id}' compiler='{compiler}' observable='{observable}' hidden='{hidden}'/>")
    }

    /// The operators of the PE are in the host pool.
    fn is_placed(&self) -> bool {
        ["Alone", "Same", "S["].iter().any(|name| self.observable.starts_with(name))
    }
}

fn in_pool() -> Placement {
    Placement { pool: Some(Pool { index: 0, in_pool_index: None }), ..Placement::default() }
}

impl Services {
    pub(super) fn new(state: ServiceState, server: &Server) -> Self {
        Self(Mutex::new(state), server.clone())
    }

    pub(in super::super) fn state(&self) -> ServiceState {
        self.0.lock().clone()
    }

    pub(in super::super) fn change(&self, change: impl FnOnce(&mut ServiceState)) {
        change(&mut self.0.lock());
    }

    fn plan(
        &self,
        widths: BTreeMap<String, u32>,
        base: Option<&Layout>,
        in_use: &[u64],
    ) -> Result<Plan, fusion::FusionError> {
        let state = self.state();
        {
            let _pause = stopwatch::pause();
            self.1.advance(Duration::from_secs(state.queue_seconds));
        }
        let ServiceState { compiler, refuses, ignores, widest, is_down, seconds, places, gives_again, regions, .. } =
            state;
        self.1.advance(Duration::from_secs(seconds));
        if is_down {
            return Err(fusion::FusionError::Unavailable("it is down".to_owned()));
        }
        if widths.values().any(|width| *width > state.endless_above) {
            return Err(fusion::FusionError::DeadlineExceeded("it takes too long".to_owned()));
        }
        if widths.values().any(|width| *width > state.too_large_above) {
            return Err(fusion::FusionError::TooLarge("use fewer PEs".to_owned()));
        }
        let too_wide = widths.values().find(|width| **width > widest);
        if refuses || too_wide.is_some() {
            let message = too_wide.map_or("it is broken".to_owned(), |width| format!("{width} is too wide"));
            return Err(fusion::FusionError::Rejected {
                stage: String::new(),
                code: None,
                message,
                problems: Vec::new(),
            });
        }
        let layout = Layout::following(base, widths, if gives_again { &[] } else { in_use });
        let known = base.map(|base| &base.texts);
        let texts = known.into_iter().flatten().map(|(id, _)| *id).chain(layout.texts.keys().copied());
        let pe = |id: u64| {
            let before = known.and_then(|known| known.get(&id));
            match layout.texts.get(&id) {
                None => ProcessingElement { id, fate: Fate::Removed.into(), ..ProcessingElement::default() },
                Some(now) => {
                    let placement = (places && now.is_placed()).then(in_pool);
                    ProcessingElement { placement, ..layout.processing_element(id, before, now, &compiler) }
                }
            }
        };
        let regions = regions.into_iter().map(|(index, name)| ParallelRegion {
            index,
            name: name.to_owned(),
            width: layout.widths[name],
            global_max_channels: layout.widths[name],
            channels_have_own_pes: true,
            touches_consistent_region: false,
            channel_count: if ignores { ChannelCount::Ignored.into() } else { 0 },
        });
        let pool = HostPool {
            index: 0,
            name: "pool".to_owned(),
            tags: vec![layout.widths["R"].to_string()],
            ..HostPool::default()
        };
        Ok(Plan {
            compiler: compiler.clone(),
            layout: serde_json::to_vec(&layout).unwrap().into(),
            parallel_regions: regions.collect(),
            host_pools: vec![pool],
            consistent_regions: vec![ConsistentRegion {
                pe_ids: vec![NOT_RESTARTABLE, SAME_TO_OBSERVERS],
                trigger: "periodic".to_owned(),
                period: layout.widths["R"].into(),
                ..ConsistentRegion::default()
            }],
            processing_elements: texts.collect::<BTreeSet<_>>().into_iter().map(pe).collect(),
            ..Plan::default()
        })
    }
}

impl Services {
    /// The texts that come with a plan.
    fn texts(&self, plan: &Plan, most: u64) -> Vec<Text> {
        let ServiceState { sends_texts, spoils_texts, .. } = self.state();
        let layout = read(Some(plan.layout.clone()));
        let pes = plan.processing_elements.iter();
        let changed = pes.filter(|pe| matches!(pe.fate(), Fate::Added | Fate::Restarted));
        let text = |pe: &ProcessingElement| {
            let spoilt = if spoils_texts { " " } else { "" };
            let content = layout.texts[&pe.id].text(pe.id, &plan.compiler) + spoilt;
            Text { pe_id: pe.id, content: content.into() }
        };
        let texts: Vec<Text> = changed.map(text).collect();
        let bytes: usize = texts.iter().map(|text| text.content.len()).sum();
        if sends_texts && bytes as u64 <= most { texts } else { Vec::new() }
    }
}

impl Layout {
    /// Channels keep their PEs; new ones get ids that nobody has.
    fn following(base: Option<&Self>, widths: BTreeMap<String, u32>, in_use: &[u64]) -> Self {
        let taken = base.into_iter().flat_map(|base| base.texts.keys()).chain(in_use);
        let taken: BTreeSet<u64> = taken.copied().collect();
        let mut fresh = (SAME_TO_OBSERVERS + 1..).filter(|id| !taken.contains(id));
        let mut layout = Self { widths: widths.clone(), ..Self::default() };
        for (region, width) in widths {
            for channel in 0..width {
                let name = format!("{region}[{channel}]");
                let id = base.and_then(|base| base.channels.get(&name).copied()).or_else(|| fresh.next()).unwrap();
                layout.texts.insert(id, TextInputs { observable: name.clone(), hidden: String::new() });
                layout.channels.insert(name, id);
            }
        }
        let all: Vec<String> = layout.widths.iter().map(|(region, width)| format!("{region}-{width}")).collect();
        let all = all.join("-");
        let source =
            |observable: &str, hidden: &str| TextInputs { observable: observable.into(), hidden: hidden.into() };
        layout.texts.insert(SOURCE, source(&format!("Source-{all}"), ""));
        layout.texts.insert(SINK, source(&format!("Sink-{all}"), ""));
        layout.texts.insert(NOT_RESTARTABLE, source("Alone", ""));
        layout.texts.insert(SAME_TO_OBSERVERS, source("Same", &all));
        layout
    }

    fn processing_element(
        &self,
        id: u64,
        before: Option<&TextInputs>,
        now: &TextInputs,
        compiler: &str,
    ) -> ProcessingElement {
        let text = now.text(id, compiler);
        let fate = match before {
            None => Fate::Added,
            Some(before) if before.observable != now.observable => Fate::Restarted,
            // The compiler may be another one, too.
            Some(_) => Fate::KeptUnobservable,
        };
        let name = now.observable.split('-').next().unwrap_or_default();
        let label =
            PortLabel { port_id: 0, operator_port_label: format!("0.{name}.0"), pe_port_label: format!("{id}.0@0") };
        ProcessingElement {
            id,
            fate: fate.into(),
            content_id: digest(text.as_bytes()),
            runtime_id: digest(format!("{id} {}", now.observable).as_bytes()),
            size: text.len() as u64,
            operators: vec![name.to_owned()],
            restartable: id != NOT_RESTARTABLE,
            port_labels: vec![label],
            exports: if now.observable.starts_with("R[") { vec![Export::default()] } else { Vec::new() },
            imports: if id == SINK { vec![Import::default()] } else { Vec::new() },
            ..ProcessingElement::default()
        }
    }
}

impl Bundles for Services {
    fn fetch<'a>(
        &'a self,
        bundle: &'a BundleReference,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Application, bundles::BundleError>> {
        let state = self.state();
        async move {
            if state.is_down {
                return Err(bundles::BundleError::transient("Unavailable", "it is down"));
            }
            self.1.advance(Duration::from_secs(state.download_seconds));
            if state.has_no_bundle {
                return Err(bundles::BundleError::not_found("there is none"));
            }
            Ok(application(bundle, state.bundle, state.build))
        }
        .boxed()
    }

    fn kept<'a>(
        &'a self,
        bundle: &'a BundleReference,
        _: &'a str,
        sha256: &'a str,
    ) -> BoxFuture<'a, Result<Option<Application>, bundles::BundleError>> {
        let state = self.state();
        let mut all =
            (0..=state.bundle).filter(|_| state.keeps_bundles).map(|version| application(bundle, version, state.build));
        let found = all.find(|application| application.bundle_sha256 == sha256);
        async { Ok(found) }.boxed()
    }

    // What it gives is never out of a memory.
    fn note_unusable(&self, _: &str, _: &str) {}
}

/// What is in a version of a bundle.
fn application(bundle: &BundleReference, version: u32, build: u32) -> Application {
    let adl =
        Bytes::from(format!("<adl bundle='{}' version='{version}'/>", bundle.name.as_deref().unwrap_or_default()));
    let adl_sha256 = digest(&adl);
    let bundle_sha256 = digest(&[format!("build {build} of ").as_bytes(), &adl[..]].concat());
    let sab_name = bundle.sab_name(&bundle_sha256).unwrap();
    Application { sab_name, adl, adl_sha256, bundle_sha256 }
}

impl Fusion for Services {
    fn submit(&self, request: SubmitRequest) -> BoxFuture<'_, Result<SubmitResponse, fusion::FusionError>> {
        let given = request.compilation.unwrap_or_default().widths;
        let given: BTreeMap<String, i64> = given.into_iter().map(|given| (given.region, given.width)).collect();
        let width = |region: &str| given.get(region).map_or(2, |width| u32::try_from(*width).unwrap());
        let regions = self.state().regions;
        let widths = regions.into_iter().map(|(_, region)| (region.to_owned(), width(region))).collect();
        async move { Ok(SubmitResponse { plan: Some(self.plan(widths, None, &[])?), ..SubmitResponse::default() }) }
            .boxed()
    }

    fn resize(&self, request: ResizeRequest) -> BoxFuture<'_, Result<ResizeResponse, fusion::FusionError>> {
        async move {
            let layout = read(request.layout.and_then(|layout| layout.content));
            self.change(|state| state.closed = request.closed_pe_ids);
            let mut widths = layout.widths.clone();
            widths.extend(request.widths.into_iter().map(|w| (w.region, u32::try_from(w.width).unwrap())));
            let plan = self.plan(widths, Some(&layout), &request.pe_ids_in_use)?;
            let texts = self.texts(&plan, request.max_text_bytes);
            Ok(ResizeResponse { plan: Some(plan), texts, ..ResizeResponse::default() })
        }
        .boxed()
    }

    fn render(&self, request: RenderRequest) -> BoxStream<'static, Result<RenderedText, fusion::FusionError>> {
        let ServiceState { compiler, is_down, renders, refused_texts, .. } = self.state();
        if is_down {
            return stream::iter([Err(fusion::FusionError::Unavailable("it is down".to_owned()))]).boxed();
        }
        if !renders || compiler != request.compiler {
            return stream::iter([Err(fusion::FusionError::OtherCompiler(request.compiler))]).boxed();
        }
        if request.pe_ids.iter().any(|id| refused_texts.contains(id)) {
            return stream::iter([Err(fusion::FusionError::LayoutRejected("it is damaged".to_owned()))]).boxed();
        }
        let layout = read(request.layout.and_then(|layout| layout.content));
        let texts = request.pe_ids.into_iter().map(move |pe_id| {
            let text = layout.texts[&pe_id].text(pe_id, &compiler);
            Ok(RenderedText { pe_id, content_id: digest(text.as_bytes()), text: text.into() })
        });
        stream::iter(texts).boxed()
    }
}

fn read(layout: Option<Bytes>) -> Layout {
    serde_json::from_slice(&layout.unwrap_or_default()).unwrap()
}
