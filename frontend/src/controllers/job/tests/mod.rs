//! The job controller over a fake cluster: its real observing, deciding, acting and long work.
//!
//! * [`simulation`] — the cluster, the services, the PE controller, users; what must hold after every write, and at
//!   rest;
//! * [`table`] — the rows of the decision, one by one;
//! * [`submissions`] — submissions that take long, or that the cluster does not permit; [`edited_submissions`]: whose
//!   specs are edited; [`numbers`]: whose numbers cannot be written;
//! * [`suspension`] — jobs that users suspend and resume, and PEs that they stop;
//! * [`behaviour`] — what users see in particular situations;
//! * [`requests`] — requests to resize, and what becomes of them; [`dry_runs`]: what would become of them;
//! * [`scenarios`] — a crash before and after every write of whole scenarios;
//! * [`early_texts`] — texts that are written while their plan is stored; [`newest_texts`]: PEs that go on with older
//!   ones;
//! * [`leaders`] — writes of a deposed leader that arrive when the next one has finished;
//! * [`older_states`] — states of the job that are shown again when they have been replaced;
//! * [`drift`] — what others change of objects; [`applied_hashes`]: of the annotation that says what was applied;
//!   [`spoilt_texts`]: of texts and chunks, again and again;
//! * [`refused_options`] — options that are refused while the job runs;
//! * [`counts`] — what Events count; [`warnings`]: PEs that could get no other pod, or have older options;
//! * [`connectivity`] — what PEs tell of their connections; [`missing_bundles`]: that they wait for their bundles;
//! * [`exhausted_regions`] — consistent regions that have given up;
//! * [`user_ports`] — ports that operators open under a name; [`transport`]: certificates;
//! * [`made_again`] — PEs that a user deletes;
//! * [`memories`] — what is remembered ends; [`trimmed`]: what mirrors leave out of objects stays there;
//! * [`orphans`] — objects that a deleted job has left behind; [`in_the_way`]: of others, and being deleted;
//!   [`copies`]: that somebody has copied;
//! * [`outdated`] — definitions of custom resources of an earlier version;
//! * [`waves`] — the order of a roll-out;
//! * [`removals`] — what goes while newer generations are committed; [`turns`]: what one turn has;
//! * [`interleavings`] — random orders of everything that can happen.

mod applied_hashes;
mod behaviour;
mod connectivity;
mod copies;
mod counts;
mod drift;
mod dry_runs;
mod early_texts;
mod edited_submissions;
mod exhausted_regions;
mod in_the_way;
mod interleavings;
mod leaders;
mod made_again;
mod memories;
mod missing_bundles;
mod newest_texts;
mod numbers;
mod older_states;
mod orphans;
mod outdated;
mod refused_options;
mod removals;
mod requests;
mod scenarios;
mod simulation;
mod spoilt_texts;
mod submissions;
mod suspension;
mod table;
mod transport;
mod trimmed;
mod turns;
mod user_ports;
mod warnings;
mod waves;
