//! PEs that their jobs do not control any more.

use super::memories::{PeProcess, create_pe};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use streams_api::{Job, ProcessingElement, condition};
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
