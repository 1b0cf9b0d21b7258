//! Texts and chunks that somebody else spoils as often as they are restored (rule call-19): the frontend waits longer
//! and longer, and nothing else does.

use super::simulation::{JobSimulation, NAMESPACE, SAME_TO_OBSERVERS, ServiceState};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use std::collections::BTreeMap;
use streams_api::{condition, names};
use streams_kubernetes::Key;

/// How somebody spoils a ConfigMap.
type Spoil = fn(&mut ConfigMap);
/// How the spoilt one comes into the cluster.
type Bring = fn(&JobSimulation, &str, Spoil);

const CONTENT: Spoil = |map| {
    map.data = map.data.take().map(|data| data.into_keys().map(|key| (key, "<other/>".to_owned())).collect());
    map.binary_data =
        map.binary_data.take().map(|data| data.into_keys().map(|key| (key, Default::default())).collect());
};
const NO_LABEL: Spoil = |map| drop(map.labels_mut().remove("app"));
const OTHER_PART: Spoil = |map| drop(map.labels_mut().insert(names::LABEL_PART.to_owned(), "other".to_owned()));
const PART_OF_PLAN: Spoil =
    |map| drop(map.labels_mut().insert(names::LABEL_PART.to_owned(), names::PART_PLAN.to_owned()));
const OTHER_ID: Spoil =
    |map| drop(map.annotations_mut().insert(names::ANNOTATION_CONTENT_ID.to_owned(), "other".to_owned()));
const NO_LABEL_AND_OTHER_CONTENT: Spoil = |map| {
    CONTENT(map);
    NO_LABEL(map);
};

fn key(name: &str) -> Key {
    Key::new(NAMESPACE, name)
}

fn map(simulation: &JobSimulation, name: &str) -> ConfigMap {
    simulation.server.get::<ConfigMap>(&key(name)).unwrap_or_else(|| panic!("{name} is gone"))
}

/// Content, labels and annotations.
fn shown(map: &ConfigMap) -> (Option<BTreeMap<String, String>>, BTreeMap<String, String>, BTreeMap<String, String>) {
    (map.data.clone(), map.labels().clone(), map.annotations().clone())
}

/// Somebody deletes the ConfigMap, and makes another one of its name.
fn make_again(simulation: &JobSimulation, name: &str, spoil: Spoil) {
    let mut made = map(simulation, name);
    simulation.server.remove::<ConfigMap>(&key(name));
    made.metadata.resource_version = None;
    made.metadata.managed_fields = None;
    made.metadata.uid = None;
    spoil(&mut made);
    simulation.server.create(&made);
}

/// Somebody changes it: its content is immutable.
fn change(simulation: &JobSimulation, name: &str, spoil: Spoil) {
    simulation.server.edit::<ConfigMap>(&key(name), spoil);
}

/// The controller and the long work go on for a while in which no pod starts.
fn go_on(simulation: &mut JobSimulation) {
    for _ in 0..6 {
        simulation.reconcile();
        simulation.work();
    }
}

fn contended(simulation: &JobSimulation) -> Option<String> {
    let status = simulation.status();
    condition::get(&status.conditions, condition::CONTENDED).map(|condition| condition.message.clone())
}

fn text_of(simulation: &JobSimulation, pe: u64) -> String {
    simulation.pe(pe).unwrap().spec.config_map.name
}

#[test]
fn a_text_is_not_restored_for_ever() {
    // how it is spoilt -> the field that is named
    let table: [(&str, Bring, Spoil, &str); 8] = [
        ("content", make_again, CONTENT, "data.aadl.xml"),
        ("label", change, NO_LABEL, "metadata.labels.app"),
        ("label of the part", change, OTHER_PART, "metadata.labels.streams.ibm.com/part"),
        ("label of another part", change, PART_OF_PLAN, "metadata.labels.streams.ibm.com/part"),
        ("annotation", change, OTHER_ID, "metadata.annotations.streams.ibm.com/content-id"),
        ("made again without a label", make_again, NO_LABEL, "data.aadl.xml"),
        ("made again with another annotation", make_again, OTHER_ID, "data.aadl.xml"),
        ("content and label", make_again, NO_LABEL_AND_OTHER_CONTENT, "data.aadl.xml"),
    ];
    for (how, bring, spoil, field) in table {
        let mut simulation = JobSimulation::running();
        simulation.server.announced();
        simulation.forget_starts();
        let name = text_of(&simulation, 0);
        let right = shown(&map(&simulation, &name));
        let is_restored = |simulation: &JobSimulation| shown(&map(simulation, &name)) == right;
        for time in 1..=3 {
            assert_eq!(contended(&simulation), None, "{how} {time}");
            bring(&simulation, &name, spoil);
            assert!(!is_restored(&simulation), "{how} spoils nothing");
            go_on(&mut simulation);
            assert!(is_restored(&simulation), "{how} {time}");
        }
        let message = contended(&simulation).unwrap_or_else(|| panic!("{how}: there is a contention"));
        assert!(message.contains(&format!("{field} of ConfigMap {name}")), "{how}: {message}");
        // It waits for a minute, then for two.
        for minutes in [1, 2, 4] {
            bring(&simulation, &name, spoil);
            go_on(&mut simulation);
            simulation.wait(60 * minutes - 1);
            go_on(&mut simulation);
            assert!(!is_restored(&simulation), "{how}: {minutes} min");
            let status = simulation.status();
            assert!(condition::is_true(&status.conditions, condition::READY), "{how}: the PE runs");
            assert!(condition::is_true(&status.conditions, condition::PODS_READY), "{how}: the PE runs");
            simulation.wait(1);
            go_on(&mut simulation);
            assert!(is_restored(&simulation), "{how}: {minutes} min");
        }
        let announced = simulation.server.announced();
        let told: Vec<_> = announced.iter().map(|announced| &*announced.notice.reason).collect();
        assert_eq!(told, ["Contended"], "{how}");
        assert!(simulation.starts().is_empty(), "{how}");
        // The other one gives up.
        simulation.wait(3600);
        simulation.settle();
        assert_eq!(contended(&simulation), None, "{how}");
        simulation.check_at_rest();
    }
}

/// Its PE runs, so another compiler is no reason to compile the job anew.
#[test]
fn a_text_without_its_label_need_not_be_rendered() {
    let table: [(&str, fn(&mut ServiceState)); 2] = [
        ("nobody renders", |services| services.is_down = true),
        ("another compiler", |services| services.compiler = "2".to_owned()),
    ];
    for (how, spoil) in table {
        // After a resize it is an older one than that of the generation, which was never written.
        for generation in [0, 1] {
            let mut simulation = JobSimulation::running();
            if generation == 1 {
                simulation.resize(0, 3);
                simulation.settle();
            }
            simulation.forget_starts();
            let name = text_of(&simulation, SAME_TO_OBSERVERS);
            let before = map(&simulation, &name);
            simulation.services.change(spoil);
            change(&simulation, &name, NO_LABEL);
            go_on(&mut simulation);
            let after = map(&simulation, &name);
            assert_eq!((after.uid(), shown(&after)), (before.uid(), shown(&before)), "{how}, {generation}");
            simulation.services.change(|services| services.is_down = false);
            simulation.settle();
            let found = (simulation.status().generation, simulation.starts().len());
            assert_eq!(found, (Some(generation), 0), "{how}");
            assert_eq!(text_of(&simulation, SAME_TO_OBSERVERS), name, "{how}, {generation}");
            simulation.check_at_rest();
        }
    }
}

#[test]
fn a_text_that_is_gone_keeps_no_other_one_without_its_label() {
    let mut simulation = JobSimulation::running();
    simulation.forget_starts();
    let [gone, unlabelled] = [0, 1].map(|pe| text_of(&simulation, pe));
    let right = shown(&map(&simulation, &unlabelled));
    simulation.services.change(|services| services.is_down = true);
    simulation.server.remove::<ConfigMap>(&key(&gone));
    change(&simulation, &unlabelled, NO_LABEL);
    go_on(&mut simulation);
    assert_eq!(shown(&map(&simulation, &unlabelled)), right);
    assert!(simulation.server.get::<ConfigMap>(&key(&gone)).is_none(), "nobody can render it");
    simulation.services.change(|services| services.is_down = false);
    simulation.settle();
    assert_eq!((simulation.status().generation, simulation.starts().len()), (Some(0), 0));
    simulation.check_at_rest();
}

#[test]
fn a_text_that_somebody_deletes_now_and_then_is_no_contention() {
    let mut simulation = JobSimulation::running();
    let name = text_of(&simulation, 0);
    for _ in 0..5 {
        simulation.server.remove::<ConfigMap>(&key(&name));
        go_on(&mut simulation);
        assert!(simulation.server.get::<ConfigMap>(&key(&name)).is_some());
    }
    assert_eq!(contended(&simulation), None);
}

/// Somebody spoils it whenever it is right.
fn insist(simulation: &mut JobSimulation, name: &str) {
    let right = shown(&map(simulation, name));
    for _ in 0..4 {
        make_again(simulation, name, CONTENT);
        go_on(simulation);
    }
    assert_ne!(shown(&map(simulation, name)), right, "it is left alone for now");
    assert!(contended(simulation).is_some());
}

#[test]
fn a_contended_text_holds_up_neither_a_resize_nor_other_texts() {
    let mut simulation = JobSimulation::running();
    let name = text_of(&simulation, 3);
    insist(&mut simulation, &name);
    let other = text_of(&simulation, 4);
    let right = shown(&map(&simulation, &other));
    make_again(&simulation, &other, CONTENT);
    simulation.server.remove::<ConfigMap>(&key(&text_of(&simulation, 5)));
    simulation.resize(1, 4);
    simulation.forget_starts();
    for _ in 0..8 {
        go_on(&mut simulation);
        simulation.run_pods();
    }
    assert_eq!(simulation.status().generation, Some(1));
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0, 1, 8, 9]);
    assert_eq!(shown(&map(&simulation, &other)), right);
    assert!(simulation.server.get::<ConfigMap>(&key(&text_of(&simulation, 5))).is_some());
    assert!(condition::is_true(&simulation.status().conditions, condition::READY));
}

#[test]
fn a_text_that_is_contended_before_the_commit_holds_up_its_pe_and_no_other() {
    let mut simulation = JobSimulation::running();
    // The text of the source for another width; it is gone when nobody wants the width any more.
    simulation.resize(0, 3);
    simulation.settle();
    let name = text_of(&simulation, 0);
    let right = shown(&map(&simulation, &name));
    simulation.resize(0, 2);
    simulation.settle();
    assert!(simulation.server.get::<ConfigMap>(&key(&name)).is_none());
    simulation.resize(0, 3);
    let mut spoilt = 0;
    for _ in 0..60 {
        simulation.round();
        simulation.work();
        let is_right = simulation.server.get::<ConfigMap>(&key(&name)).is_some_and(|map| shown(&map) == right);
        if is_right {
            assert_eq!(simulation.status().generation, Some(2), "it is spoilt before the commit");
            make_again(&simulation, &name, CONTENT);
            spoilt += 1;
        }
        if simulation.status().generation == Some(3) {
            break;
        }
    }
    assert_eq!((simulation.status().generation, spoilt), (Some(3), 4), "the other texts are committed");
    simulation.forget_starts();
    for _ in 0..4 {
        go_on(&mut simulation);
        simulation.run_pods();
    }
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [1, 8], "the sink, and the new channel");
    simulation.wait(10);
    go_on(&mut simulation);
    let status = simulation.status();
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    let words = "waiting: PE 0 (ChangedByOthers): somebody else changes its text as often as it is written";
    assert!(ready.message.contains(words), "{}", ready.message);
    // The other one gives up.
    simulation.settle();
    assert_eq!(shown(&map(&simulation, &name)), right);
    simulation.check_at_rest();
    assert_eq!(simulation.starts().into_keys().collect::<Vec<_>>(), [0, 1, 8]);
}

/// Committed without an object, it would look like a PE that somebody has deleted.
#[test]
fn a_new_pe_whose_text_is_contended_is_waited_for_before_the_commit() {
    let mut simulation = JobSimulation::running();
    simulation.resize(0, 3);
    simulation.settle();
    let name = text_of(&simulation, 8);
    let right = shown(&map(&simulation, &name));
    simulation.resize(0, 2);
    simulation.settle();
    assert!(simulation.pe(8).is_none());
    simulation.resize(0, 3);
    let mut spoilt = 0;
    for _ in 0..60 {
        simulation.round();
        simulation.work();
        let is_right = simulation.server.get::<ConfigMap>(&key(&name)).is_some_and(|map| shown(&map) == right);
        if is_right && spoilt < 4 {
            make_again(&simulation, &name, CONTENT);
            spoilt += 1;
        }
    }
    assert_eq!((simulation.status().generation, spoilt), (Some(2), 4));
    assert!(contended(&simulation).is_some());
    // The other one gives up.
    simulation.settle();
    simulation.check_at_rest();
    assert_eq!(simulation.status().generation, Some(3));
    assert_eq!(simulation.pe(8).unwrap().status.unwrap().launch_count, 1, "its first pod is no restart");
}

#[test]
fn chunks_are_not_restored_for_ever_either() {
    let mut simulation = JobSimulation::running();
    let name = simulation.chunks().into_iter().find(|name| name.contains("adl")).unwrap();
    let before = map(&simulation, &name).binary_data;
    let is_right = |simulation: &JobSimulation| map(simulation, &name).binary_data == before;
    for _ in 0..3 {
        make_again(&simulation, &name, CONTENT);
        go_on(&mut simulation);
        assert!(is_right(&simulation));
    }
    let message = contended(&simulation).expect("there is a contention");
    assert!(message.contains(&format!("binaryData.chunk of ConfigMap {name}")), "{message}");
    make_again(&simulation, &name, CONTENT);
    simulation.resize(0, 3);
    for _ in 0..4 {
        go_on(&mut simulation);
        simulation.run_pods();
    }
    // The job goes on by what it remembers.
    assert_eq!(simulation.status().generation, Some(1));
    assert!(!is_right(&simulation));
    simulation.settle();
    assert!(is_right(&simulation));
    simulation.check_at_rest();
}

/// One text that is not the job's to write must not keep the others from being written.
#[test]
fn a_text_whose_name_is_taken_does_not_keep_others_from_being_written() {
    let mut simulation = JobSimulation::running();
    // More than are written at the same time.
    simulation.resize(0, 30);
    simulation.settle();
    let mut ids: Vec<u64> = simulation.pes().into_keys().collect();
    // Its text is an older one, which nobody can render again.
    ids.retain(|id| *id != SAME_TO_OBSERVERS);
    let texts: Vec<String> = ids.into_iter().map(|id| text_of(&simulation, id)).collect();
    let taken = |map: &mut ConfigMap| map.metadata.owner_references = None;
    make_again(&simulation, &texts[0], taken);
    texts[1..].iter().for_each(|name| simulation.server.remove::<ConfigMap>(&key(name)));
    go_on(&mut simulation);
    let is_there = |name: &String| simulation.server.get::<ConfigMap>(&key(name)).is_some();
    let missing: Vec<_> = texts.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let status = simulation.status();
    let progressing = condition::get(&status.conditions, condition::PROGRESSING).unwrap();
    assert_eq!(progressing.reason, "NameTaken");
}
