//! PEs that their jobs do not control any more, and pods of others with the names of theirs.

use super::memories::{PeProcess, create_pe};
use crate::pods_of_pe;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::DeleteParams;
use kube::core::ObjectMeta;
use streams_api::{Job, PePhase, ProcessingElement, condition, names};
use streams_kubernetes::Key;
use streams_kubernetes::ownership::controlled_by;
use streams_kubernetes_fake::Server;

/// When a job is deleted without its PEs, they lose their owner references before it is gone.
#[test]
fn what_has_become_of_the_job_is_believed_to_the_api_server_and_not_to_the_mirror() {
    let other = OwnerReference { controller: Some(true), uid: "other".to_owned(), ..OwnerReference::default() };
    // the job is gone, owner references -> what the PE says of it
    let table = [
        (false, None, Some("OwnerReferenceRemoved")),
        (false, Some(vec![other.clone()]), Some("OwnerReferenceRemoved")),
        (true, None, Some("JobDeleted")),
        (true, Some(vec![other]), None),
    ];
    for (is_gone, owners, expected) in table {
        let server = Server::new();
        let mut process = PeProcess::start(&server);
        let pe = create_pe(&server, "job");
        let job = pe.sibling("job");
        server.edit(&job, |job: &mut Job| job.status.get_or_insert_default().job_id = Some(0));
        process.mirrors.deliver_all();
        process.reconcile(&pe);
        server.edit(&pe, |pe: &mut ProcessingElement| pe.metadata.owner_references = owners);
        if is_gone {
            server.remove::<Job>(&job);
        }
        // The mirror of jobs is behind.
        process.mirrors.processing_elements.deliver(usize::MAX);
        process.mirrors.pods.deliver(usize::MAX);
        process.reconcile(&pe);
        let status = server.get::<ProcessingElement>(&pe).unwrap().status.unwrap();
        assert_eq!(status.launch_count, 1);
        let orphaned = condition::get(&status.conditions, condition::ORPHANED);
        assert_eq!(orphaned.map(|orphaned| orphaned.reason.as_str()), expected, "{is_gone}");
    }
}

/// Its pod would be a second one with the label by which the Service of the PE selects.
#[test]
fn a_copy_of_a_pe_gets_no_pod_and_says_why() {
    // what the name of the copy ends with
    for suffix in ["b", "-copy"] {
        let server = Server::new();
        let mut process = PeProcess::start(&server);
        let pe = create_pe(&server, "job");
        let original = server.get::<ProcessingElement>(&pe).unwrap();
        let metadata = ObjectMeta {
            name: Some(format!("{}{suffix}", pe.name)),
            resource_version: None,
            uid: None,
            ..original.metadata.clone()
        };
        let copy = Key::of(&server.create(&ProcessingElement { metadata, ..original }));
        for _ in 0..3 {
            process.mirrors.deliver_all();
            process.reconcile(&copy);
            process.reconcile(&pe);
        }
        let of_original = server.get::<ProcessingElement>(&pe).unwrap().status.unwrap();
        let pods: Vec<_> = server.list::<Pod>().into_iter().map(|pod| pod.metadata.uid).collect();
        assert_eq!((of_original.launch_count, pods), (1, vec![of_original.pod_uid]), "{suffix}");
        let status = server.get::<ProcessingElement>(&copy).unwrap().status.unwrap();
        let ready = condition::get(&status.conditions, condition::READY).unwrap();
        assert_eq!((status.phase, status.launch_count), (Some(PePhase::Waiting), 0), "{suffix}");
        assert_eq!(ready.reason, "JobMissing");
        assert!(ready.message.starts_with("it is a copy of job-0,"), "{}", ready.message);
        let told: Vec<_> = server.announced().into_iter().map(|told| (told.about, told.notice.reason)).collect();
        assert_eq!(told, [(copy, "JobMissing".into())], "{suffix}");
    }
}

/// A pod of this name in the namespace of the PE, which something controls.
fn create_pod(server: &Server, pe: &Key, name: &str, owner: OwnerReference, meta: ObjectMeta) -> Key {
    let metadata = ObjectMeta {
        namespace: Some(pe.namespace.to_string()),
        name: Some(name.to_owned()),
        owner_references: Some(vec![owner]),
        ..meta
    };
    Key::of(&server.create(&Pod { metadata, ..Pod::default() }))
}

/// The mirror does not show it, and it may be going for ever.
#[test]
fn a_pod_of_others_that_is_going_and_has_the_name_of_the_next_one_is_told_and_not_asked_for_again_and_again() {
    let server = Server::new();
    let mut process = PeProcess::start(&server);
    let pe = create_pe(&server, "job");
    process.mirrors.deliver_all();
    let uid = server.get::<ProcessingElement>(&pe).unwrap().uid().unwrap();
    let owner = controlled_by(&server.get::<ConfigMap>(&pe.sibling("job-0-text")).unwrap());
    let finalizers = Some(vec!["of.others/finalizer".to_owned()]);
    let meta = ObjectMeta { finalizers, ..ObjectMeta::default() };
    let other = create_pod(&server, &pe, &pods_of_pe::name(&pe.name, &uid, 1), owner, meta);
    server.delete::<Pod>(&other, &DeleteParams::default());
    let refused = process.try_reconcile(&pe).unwrap_err();
    assert_eq!(refused.to_string(), format!("Pod {} is being deleted", other.name));
    let status = server.get::<ProcessingElement>(&pe).unwrap().status.unwrap();
    let ready = condition::get(&status.conditions, condition::READY).unwrap();
    assert_eq!((status.phase, ready.reason.as_str()), (Some(PePhase::Waiting), "PodRefused"));
    server.remove::<Pod>(&other);
    process.mirrors.deliver_all();
    process.reconcile(&pe);
    assert_eq!(server.get::<ProcessingElement>(&pe).unwrap().status.unwrap().created_launch_count, 1);
}

#[test]
fn of_many_pods_that_look_like_those_of_a_pe_few_are_looked_at_and_its_own_is_one_of_them() {
    let server = Server::new();
    let mut process = PeProcess::start(&server);
    let pe = create_pe(&server, "job");
    process.mirrors.deliver_all();
    process.reconcile(&pe);
    let own = server.list::<Pod>().remove(0);
    let before = controlled_by(&server.get::<ProcessingElement>(&pe).unwrap());
    let before = OwnerReference { uid: "before".to_owned(), ..before };
    for number in 0..200 {
        // Of an earlier PE of the name, as it seems, and of nobody who gives such names.
        for name in [format!("{}-{number:010x}", pe.name), format!("{}-{number}", pe.name)] {
            let meta = ObjectMeta { labels: Some(names::pe_labels("job", 0)), ..ObjectMeta::default() };
            create_pod(&server, &pe, &name, before.clone(), meta);
        }
    }
    // The newest launch, which has its pod -> the pod of the first one is among them, as long as it may be going.
    for launch in [1, 2] {
        server.edit(&pe, |pe: &mut ProcessingElement| {
            let status = pe.status.get_or_insert_default();
            (status.launch_count, status.created_launch_count) = (launch, launch);
        });
        process.mirrors.deliver_all();
        let observed = process.observed(&pe);
        let pods: Vec<_> = observed.pods.iter().map(|pod| Some(&pod.uid)).collect();
        assert_eq!(pods, [own.metadata.uid.as_ref()], "{launch}");
        assert_eq!(observed.predecessors.len(), 63);
    }
}

/// They are found by labels, which anybody can give to as many pods as he likes.
#[test]
fn of_many_pods_that_look_like_those_of_an_earlier_pe_few_are_kept_and_those_that_are_waited_for_are_among_them() {
    let server = Server::new();
    let mut process = PeProcess::start(&server);
    let pe = create_pe(&server, "job");
    server.edit(&pe, |pe: &mut ProcessingElement| pe.status.get_or_insert_default().launch_count = 2);
    // how many, how their names begin, how they do, the launch that the first of them says -> how many are kept
    let table = [(500, "a", "Pending", 2_000, 0), (10, "0", "Running", 3, 10), (1_000, "f", "Succeeded", 1_000, 54)];
    for (count, begin, phase, launch, _) in table {
        for number in 0..count {
            // A name as a PE gives it, or one that nobody gives.
            let suffix = if begin == "a" { format!("{begin}{number}") } else { format!("{begin}{number:09x}") };
            let mut labels = names::pe_labels("job", 0);
            labels.insert(names::LABEL_LAUNCH_COUNT.to_owned(), (launch + number).to_string());
            let metadata = ObjectMeta {
                namespace: Some(pe.namespace.to_string()),
                name: Some(format!("{}-{suffix}", pe.name)),
                labels: Some(labels),
                ..ObjectMeta::default()
            };
            let status = Some(PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() });
            server.create(&Pod { metadata, status, ..Pod::default() });
        }
    }
    process.mirrors.deliver_all();
    let kept = process.predecessors(&pe);
    assert_eq!(process.largest_page(), 10);
    for (_, begin, phase, _, expected) in table {
        let begin = format!("{}-{begin}", pe.name);
        let launches: Vec<_> =
            kept.iter().filter(|pod| pod.name.starts_with(&begin)).map(|pod| pod.launch_count).collect();
        assert_eq!(launches.len(), expected, "{phase}");
        assert!(phase != "Succeeded" || launches.iter().all(|launch| *launch > 1_999 - 54), "{launches:?}");
    }
}
