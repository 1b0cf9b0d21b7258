//! Finds out which options the PEs of a job have, by their objects (rule job-39). Pure.
//!
//! Knows: PEs as they are, and as they should be. Must not know: which options are refused.

use super::generation::{Generation, Origin};
use super::objects::{ChildBuilder, TextVersion};
use kube::ResourceExt as _;
use streams_api::{JobSpec, PeOptions, ProcessingElement, names};
use streams_kubernetes::writer::hash;
use streams_proto::fusion::v1::ProcessingElement as Planned;

/// How many PEs are asked whether they are as they were applied.
const ASKED: usize = 16;

/// The options of the PE with the smallest id of those that the committed generation has, that stay, and that are as
/// they were applied for it: one that others have changed, or that is behind, does not say what the PEs have. If there
/// is none among the first, as an earlier frontend has written them in another form, the options of the very first.
/// `builder` makes objects of the job.
pub(crate) fn running_options<'a>(
    builder: ChildBuilder<'_>,
    generation: &Generation,
    pes: impl IntoIterator<Item = &'a ProcessingElement>,
) -> Option<&'a PeOptions> {
    let staying = pes.into_iter().filter(|pe| pe.metadata.deletion_timestamp.is_none());
    let members = staying.filter_map(|pe| Some((pe, generation.member(pe.spec.id)?)));
    let mut members: Vec<_> = members.collect();
    members.sort_by_key(|(pe, _)| pe.spec.id);
    let is_as_applied = |(pe, (planned, origin)): &&(&ProcessingElement, (&Planned, &Origin))| {
        let options = Some(pe.spec.options.clone());
        let spec = JobSpec { resources: None, processing_element: options, ..builder.spec.clone() };
        let builder = ChildBuilder { spec: &spec, ..builder };
        let applied = pe.annotations().get(names::ANNOTATION_APPLIED_HASH);
        [TextVersion::Origin, TextVersion::Newest].into_iter().any(|version| {
            let desired = builder.processing_element(generation, planned, origin, version);
            hash(&desired).is_ok_and(|hash| Some(&hash) == applied)
        })
    };
    let chosen = members.iter().take(ASKED).find(is_as_applied).or(members.first());
    chosen.map(|(pe, _)| &pe.spec.options)
}
