//! The fake passes the table.

use futures::executor::block_on;
use std::future::Future;
use streams_kubernetes_fake::Server;
use streams_kubernetes_fake::conformance::{Patience, cases, run};

/// The garbage collector works while somebody waits.
struct Collector(Server);

impl Patience for Collector {
    fn wait(&mut self) -> impl Future<Output = bool> + Send {
        std::future::ready(self.0.collect_garbage())
    }
}

#[test]
fn the_fake_does_what_an_api_server_does() {
    let mut failed = Vec::new();
    for case in cases() {
        let server = Server::new();
        if let Err(error) = block_on(run(&server.connect(), "n", &case, &mut Collector(server.clone()))) {
            failed.push(format!("{error:#}"));
        }
    }
    assert!(failed.is_empty(), "\n{}", failed.join("\n"));
}
