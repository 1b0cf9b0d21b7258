//! What holds for the repository as a whole: its documents and its code belong together. Starts nothing.
//!
//! | Module | Question |
//! |---|---|
//! | [`rules`] | Does the code cite the rules of `docs/rules`, all of them, and nothing else? |
//! | [`links`] | Do links between documents lead somewhere? |
//! | [`deployment`] | Do documents name what the manifests have, and paths that there are? |
//! | [`chart`] | Do the Helm chart and the kustomizations say the same? |
//! | [`monitoring`] | Do documents, alerts and dashboards name figures that there are? |
//! | [`samples`] | Are the samples for people to start from what their readers take them for? |
//! | [`borders`] | Do crates depend on nothing that they must not know? |
//! | [`circles`] | Do modules import each other in one direction? |
//! | [`source`] | Is the code written as CONTRIBUTING says? |
//! | [`citations`], [`markdown`], [`files`] | parts of these: reading citations, headings and links, and the files |

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod borders;
mod chart;
mod circles;
mod citations;
mod deployment;
mod files;
mod links;
mod markdown;
mod monitoring;
mod rules;
mod samples;
mod source;
