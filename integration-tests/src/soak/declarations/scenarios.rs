//! What users write beside the fields of jobs, what they delete, and in which order such things meet: regions, bounds,
//! suspension, requests to restart and to stop, waves, edits while others are under way, jobs that come again.
//!
//! Knows: what users write. Must not know: what must come of it, but for what a step says.

use super::children::Child;
use super::fields;
use super::propagation::Propagation;
use super::sequence::{End, Sequence, Step, base, base_of_all_kinds, create};
use super::spoils;
use super::values::{COPY, REDIS};
use anyhow::Result;
use serde_json::{Value, json};

/// All of them.
///
/// # Errors
/// When the schemas of the kinds of objects cannot be read.
pub(super) fn all() -> Result<Vec<Sequence>> {
    let mut sequences = Vec::new();
    for part in [regions(), suspension(), stops(), under_way(), secured(), lost(), again(), ended_early()] {
        sequences.extend(part);
    }
    sequences.extend(spoils::all()?);
    Ok(sequences)
}

fn named(name: &str, steps: Vec<Step>, end: End) -> Sequence {
    Sequence { name: name.to_owned(), steps, end }
}

fn with(patch: Value) -> Step {
    create(fields::merged(&base(), &patch))
}

fn width(region: &str, width: impl Into<Value>, words: &[&str]) -> Step {
    Step::Width { region: region.to_owned(), width: width.into(), words: owned(words) }
}

fn set(place: &str, value: Value, words: &[&str]) -> Step {
    Step::Set { at: place.split('.').map(str::to_owned).collect(), value, words: owned(words), refused: false }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn regions() -> Vec<Sequence> {
    let create = || create(base());
    let bounded = || with(json!({"parallelRegions": [{"name": "Clean", "maxWidth": 3}]}));
    let out_of_bounds = || vec![bounded(), width("Clean", 4, &["maxWidth", "3"])];
    let at_most = |most: u32| set("parallelRegions", json!([{"name": "Clean", "maxWidth": most}]), &[]);
    vec![
        named(
            "regions/changed",
            vec![create(), width("Clean", 4, &[]), width("Score.Model", 1, &[]), width("Clean", 2, &[])],
            End::Namespace,
        ),
        named(
            "regions/made invalid and corrected",
            vec![
                create(),
                width("Clean", 0, &["width"]),
                width("Clean", 10_001, &["width"]),
                width("Clean", "wide", &["width"]),
                width("Clean", 3, &[]),
            ],
            End::Job(Propagation::Foreground),
        ),
        named(
            "regions/out of bounds, corrected by another width",
            [out_of_bounds(), vec![width("Clean", 3, &[])]].concat(),
            End::Job(Propagation::Background),
        ),
        named(
            "regions/out of bounds, corrected by other bounds",
            [out_of_bounds(), vec![set("parallelRegions", Value::Null, &[])]].concat(),
            End::Job(Propagation::Background),
        ),
        named(
            "regions/out of bounds, and their object lost",
            [out_of_bounds(), vec![width("Clean", 2, &[]), Step::Lose(Child::Region, Propagation::Background)]]
                .concat(),
            End::Job(Propagation::Background),
        ),
        named(
            "regions/bounds below the width in force",
            vec![
                create(),
                width("Clean", 4, &[]),
                at_most(3),
                width("Clean", 5, &["maxWidth", "3"]),
                width("Clean", 4, &[]),
                at_most(5),
                width("Clean", 5, &[]),
                set("parallelRegions", Value::Null, &[]),
            ],
            End::Namespace,
        ),
        named(
            "regions/bounds of no region",
            vec![
                create(),
                set("parallelRegions", json!([{"name": "Cleen", "maxWidth": 3}]), &["Cleen"]),
                set("parallelRegions", Value::Null, &[]),
            ],
            End::Namespace,
        ),
        named("restarts/requested", vec![create(), Step::Restart, Step::Restart], End::Namespace),
    ]
}

fn suspend() -> Step {
    set("suspend", json!(true), &["suspended"])
}

fn resume(value: Value) -> Step {
    set("suspend", value, &[])
}

fn suspension() -> Vec<Sequence> {
    let create = || create(base());
    vec![
        named(
            "suspension/resized, edited, restarted meanwhile",
            vec![
                create(),
                suspend(),
                width("Clean", 4, &[]),
                set("processingElement.image", json!("runtime"), &[]),
                Step::Restart,
                width("Clean", 1, &[]),
                resume(Value::Null),
            ],
            End::Job(Propagation::Background),
        ),
        named(
            "suspension/taken back at once",
            vec![
                create(),
                Step::Together(vec![suspend(), resume(json!(false))]),
                Step::Together(vec![suspend(), width("Clean", 3, &[]), resume(Value::Null)]),
                Step::Together(vec![width("Clean", 1, &[]), suspend(), resume(json!(false)), width("Clean", 2, &[])]),
            ],
            End::Namespace,
        ),
        named(
            "suspension/while it is submitted",
            vec![Step::Together(vec![create(), suspend()]), resume(json!(false))],
            End::Job(Propagation::Foreground),
        ),
        named(
            "suspension/again",
            vec![create(), suspend(), Step::Again(Propagation::Background), resume(json!(false))],
            End::Namespace,
        ),
        named("suspension/deleted", vec![create(), suspend()], End::Job(Propagation::Foreground)),
        named("suspension/its namespace deleted", vec![create(), suspend()], End::Namespace),
        named(
            "suspension/objects lost meanwhile",
            vec![
                create(),
                suspend(),
                Step::Lose(Child::Service, Propagation::Background),
                Step::Lose(Child::ConfigMap, Propagation::Background),
                Step::Lose(Child::ProcessingElement, Propagation::Background),
                resume(json!(false)),
            ],
            End::Namespace,
        ),
    ]
}

fn stops() -> Vec<Sequence> {
    let create = || create(base());
    vec![
        named("stops/taken back", vec![create(), Step::Stop(0), Step::Go(0)], End::Namespace),
        named(
            "stops/ended by a restart",
            vec![create(), Step::Stop(1), Step::Restart, Step::Stop(1), Step::Go(1)],
            End::Job(Propagation::Background),
        ),
        named(
            "stops/all, and a resize",
            vec![
                create(),
                Step::Together(vec![Step::Stop(0), Step::Stop(1), Step::Stop(2)]),
                width("Clean", 4, &[]),
                Step::Go(1),
                Step::Together(vec![Step::Go(0), Step::Go(2)]),
            ],
            End::Namespace,
        ),
        named(
            "stops/of a suspended job",
            vec![create(), suspend(), Step::Stop(0), resume(json!(false)), Step::Go(0)],
            End::Job(Propagation::Foreground),
        ),
        named(
            "stops/of a PE that is lost",
            vec![create(), Step::Stop(0), Step::Lose(Child::ProcessingElement, Propagation::Background)],
            End::Namespace,
        ),
        named(
            "stops/taken back at once",
            vec![create(), Step::Together(vec![Step::Stop(0), Step::Go(0)])],
            End::Namespace,
        ),
    ]
}

/// Edits while a submission or a roll-out is under way.
fn under_way() -> Vec<Sequence> {
    let create = || create(base());
    let each_operator = |rollout: Value| with(json!({"fusion": {"manual": null, "legacy": true}, "rollout": rollout}));
    let image = |image: &str| set("processingElement.image", json!(image), &[]);
    let unavailable = |value: Value| set("rollout.maxUnavailable", value, &[]);
    vec![
        named(
            "under way/waves made wider and narrower",
            vec![
                each_operator(json!({"maxUnavailable": 1, "minReadySeconds": 1})),
                Step::Begun(vec![width("Clean", 4, &[])]),
                Step::Together(vec![unavailable(json!("100%")), width("Score", 1, &[])]),
                Step::Together(vec![width("Clean", 2, &[]), unavailable(json!(2)), image("runtime")]),
                Step::Together(vec![width("Clean", 3, &[]), set("rollout", Value::Null, &[])]),
            ],
            End::Namespace,
        ),
        named(
            "under way/waves and a PE that cannot run",
            vec![
                each_operator(json!({"maxUnavailable": 1})),
                Step::Together(vec![
                    set("processingElement.dataVolumeClaim", json!({"name": "no-such-claim"}), &["no-such-claim"]),
                    width("Clean", 3, &[]),
                ]),
                set("processingElement.dataVolumeClaim", Value::Null, &[]),
            ],
            End::Job(Propagation::Background),
        ),
        named(
            "under way/widths one upon the other",
            vec![
                create(),
                Step::Together((1..6).map(|number| width("Clean", number, &[])).collect()),
                Step::Together(vec![width("Clean", 1, &[]), width("Score", 3, &[]), width("Score.Model", 1, &[])]),
            ],
            End::Namespace,
        ),
        named(
            "under way/edits of a submission",
            vec![Step::Together(vec![
                create(),
                set("fusion.manual", json!(5), &[]),
                image("runtime"),
                set("bundle.file", json!(COPY), &[]),
                set("submissionTimeValues", json!({"cleaners": 3}), &[]),
            ])],
            End::Namespace,
        ),
        named(
            "under way/errors of a submission, corrected at once",
            vec![
                Step::Together(vec![
                    with(json!({"bundle": {"file": "missing.sab"}})),
                    set("bundle.file", json!("broken.sab"), &["broken"]),
                    set("bundle.file", json!(COPY), &[]),
                ]),
                image("runtime"),
            ],
            End::Job(Propagation::Background),
        ),
        named(
            "under way/restarts, options and objects that are lost",
            vec![
                create(),
                Step::Together(vec![
                    Step::Restart,
                    image("runtime"),
                    Step::Lose(Child::ConfigMap, Propagation::Background),
                    Step::Restart,
                    width("Clean", 4, &[]),
                    Step::Lose(Child::Service, Propagation::Background),
                ]),
            ],
            End::Namespace,
        ),
    ]
}

/// Certificates and redis servers.
fn secured() -> Vec<Sequence> {
    let tls = || with(json!({"processingElement": {"transportSecurityType": "TLSv1.2"}}));
    let validity = |days: Value| set("transportCertificateValidityInDays", days, &[]);
    let [(service, _), ..] = REDIS;
    let redis = || json!({"redis": {"service": service, "replicaCount": 1, "shardCount": 1}});
    vec![
        named(
            "secured/certificates",
            vec![
                tls(),
                validity(json!(2)),
                width("Clean", 4, &[]),
                Step::Restart,
                Step::Together(vec![validity(json!(7)), width("Clean", 2, &[]), validity(json!(9))]),
                validity(Value::Null),
                set("processingElement.transportSecurityType", json!("none"), &["transportSecurityType"]),
            ],
            End::Job(Propagation::Foreground),
        ),
        named("secured/again", vec![tls(), Step::Again(Propagation::Foreground)], End::Namespace),
        named(
            "secured/suspended",
            vec![tls(), suspend(), validity(json!(3)), resume(json!(false))],
            End::Job(Propagation::Background),
        ),
        named(
            "redis/taken away",
            vec![
                with(json!({"processingElement": {"checkpointRepository": redis()}})),
                width("Clean", 3, &[]),
                set("processingElement.checkpointRepository", Value::Null, &[]),
            ],
            End::Namespace,
        ),
        named(
            "redis/taken away and put back, under either name",
            vec![
                with(json!({"processingElement": {"checkpointRepository": redis()}})),
                set("processingElement.checkpointRepository", Value::Null, &[]),
                set("processingElement.checkpointRepository", redis(), &[]),
                width("Clean", 3, &[]),
                set("processingElement.checkpointRepository", Value::Null, &[]),
                set("processingElement.checkpointDataStore", redis(), &[]),
            ],
            End::Job(Propagation::Background),
        ),
        named(
            "redis/added while it runs",
            vec![create(base()), set("processingElement.checkpointRepository", redis(), &["checkpointRepository"])],
            End::Job(Propagation::Background),
        ),
        named(
            "redis/corrected before it is submitted",
            vec![
                Step::Create {
                    spec: fields::merged(
                        &base(),
                        &json!({"processingElement": {"checkpointRepository": {
                            "redis": {"service": "no-such-service", "replicaCount": 1, "shardCount": 1},
                        }}}),
                    ),
                    words: owned(&["no-such-service"]),
                    refused: false,
                },
                set("processingElement.checkpointRepository.redis", json!({"replicaCount": 3}), &["no-such-service"]),
                set("processingElement.checkpointRepository", Value::Null, &[]),
            ],
            End::Namespace,
        ),
    ]
}

/// Each kind of object, deleted in each way.
fn lost() -> Vec<Sequence> {
    let mut sequences = Vec::new();
    let kinds = [
        (base(), &[Child::Service, Child::ConfigMap, Child::JobConfigMap, Child::Region, Child::ProcessingElement][..]),
        (base_of_all_kinds(), &[Child::HostPool, Child::Export, Child::Import, Child::ConsistentRegion][..]),
        (
            fields::merged(&base(), &json!({"processingElement": {"transportSecurityType": "TLSv1.2"}})),
            &[Child::Secret][..],
        ),
        (fields::merged(&base(), &json!({"processingElement": {"restartDeletedPod": true}})), &[Child::Pod][..]),
    ];
    for (spec, children) in kinds {
        for child in children {
            for propagation in Propagation::ALL {
                let steps = vec![create(spec.clone()), Step::Lose(*child, propagation)];
                sequences.push(named(
                    &format!("children/{child:?} lost, {propagation:?}"),
                    steps,
                    End::Job(propagation),
                ));
            }
        }
    }
    sequences
}

fn again() -> Vec<Sequence> {
    let mut sequences: Vec<_> = Propagation::ALL
        .into_iter()
        .map(|propagation| {
            let steps = vec![create(base()), Step::Again(propagation)];
            named(&format!("again/{propagation:?}"), steps, End::Namespace)
        })
        .collect();
    let (background, foreground) = (Propagation::Background, Propagation::Foreground);
    sequences.extend([
        named(
            "again/all kinds of objects",
            vec![create(base_of_all_kinds()), Step::Again(background), Step::Again(foreground)],
            End::Job(background),
        ),
        named(
            "again/while it is resized",
            vec![
                create(base()),
                Step::Together(vec![width("Clean", 4, &[]), Step::Again(background)]),
                Step::Together(vec![width("Clean", 4, &[]), Step::Again(foreground)]),
            ],
            End::Namespace,
        ),
        named(
            "again/and again",
            vec![Step::Together(vec![
                create(base()),
                Step::Again(background),
                Step::Again(foreground),
                Step::Again(background),
            ])],
            End::Namespace,
        ),
    ]);
    sequences
}

/// Jobs and namespaces that go before anything has come to rest.
fn ended_early() -> Vec<Sequence> {
    let begun = || vec![Step::Begun(vec![create(base_of_all_kinds())])];
    let resized = || vec![create(base()), Step::Begun(vec![width("Clean", 4, &[])])];
    let ends = Propagation::ALL.map(End::Job).into_iter().chain([End::Namespace]);
    ends.flat_map(|end| {
        [("submitted", begun()), ("resized", resized())]
            .map(|(what, steps)| named(&format!("ended while {what}, {end:?}"), steps, end))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::all;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_scenarios_have_one_name_and_each_can_be_written_down() {
        let sequences = all().unwrap();
        let names: BTreeSet<_> = sequences.iter().map(|sequence| sequence.name.clone()).collect();
        assert_eq!(names.len(), sequences.len());
        for sequence in &sequences {
            let text = serde_json::to_string(sequence).unwrap();
            assert_eq!(serde_json::from_str::<super::Sequence>(&text).unwrap(), *sequence);
        }
    }
}
