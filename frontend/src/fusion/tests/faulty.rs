//! One replica with a defect decides nothing for good, and something in between that answers in place of a replica is
//! none.

use super::*;
use axum::Router;
use axum::http::StatusCode;
use tonic::service::Routes;

#[tokio::test]
async fn what_one_replica_alone_refuses_is_asked_of_another_one() {
    use Behaviour::{Good, Huge, HugeUnpacked, Refusing, Rejecting, Unavailable};
    // the second replica -> whether it answers, whether its refusal is final
    let table = [
        (Some(Good), true, false),
        (Some(Rejecting), false, true),
        (Some(Refusing), false, true),
        (Some(Unavailable), false, false),
        (None, false, true),
    ];
    for faulty in [Huge, HugeUnpacked, Refusing] {
        for (second, answers, is_final) in table {
            let case = format!("{faulty:?} {second:?}");
            let behaviours: Vec<Behaviour> = [faulty].into_iter().chain(second).collect();
            // On a busy machine the first one has to answer within half of it.
            let deadline = if second == Some(Unavailable) { Duration::from_secs(4) } else { LONG };
            let (client, calls, application) = client_of_first(&behaviours, deadline).await;
            let answer = client.submit(SubmitRequest { compilation: compilation_of(application) }).await;
            assert_eq!(answer.is_ok(), answers, "{case}: {answer:?}");
            assert_eq!(answer.is_err_and(|error| !error.is_transient()), is_final, "{case}");
            assert_eq!(calls[0].load(Ordering::SeqCst), 1, "{case}");
        }
    }
}

#[tokio::test]
async fn a_replica_that_refuses_what_another_one_answers_is_left_alone() {
    loop {
        let (client, calls, application) = client_of_first(&[Behaviour::Refusing, Behaviour::Good], LONG).await;
        let begun = Instant::now();
        for _ in 0..2 {
            client.submit(SubmitRequest { compilation: compilation_of(application) }).await.unwrap();
        }
        if begun.elapsed() < REST {
            let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
            assert_eq!(calls, [1, 2]);
            break;
        }
    }
}

#[tokio::test]
async fn a_defect_of_one_and_a_refusal_of_another_one_say_nothing_of_the_request() {
    use Behaviour::{Defect, Good, Refusing};
    for behaviours in [[Refusing, Defect, Good], [Defect, Refusing, Good]] {
        let (client, calls, application) = client_of_first(&behaviours, LONG).await;
        client.submit(SubmitRequest { compilation: compilation_of(application) }).await.unwrap();
        let calls: Vec<_> = calls.iter().map(|calls| calls.load(Ordering::SeqCst)).collect();
        assert_eq!(calls, [1, 1, 1], "{behaviours:?}");
    }
}

/// A gateway before the replicas, with a page for people.
#[tokio::test]
async fn a_page_of_a_gateway_is_no_defect_of_the_request() {
    // status, page -> what the error says
    let table = [
        (StatusCode::SERVICE_UNAVAILABLE, "<html>soon</html>", "HTTP 503 Service Unavailable"),
        (StatusCode::NOT_FOUND, "<html>what?</html>", "HTTP 404 Not Found"),
        (StatusCode::FOUND, "<html>log in</html>", "HTTP 302 Found"),
        (StatusCode::BAD_REQUEST, "", "HTTP 400"),
    ];
    for (status, page, expected) in table {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = ClientOptions::new(vec![listener.local_addr().unwrap().to_string()]);
        options.submit_deadline = Duration::from_secs(2);
        let routes = Routes::from(Router::new().fallback(move || async move { (status, page) }));
        let server = tonic::transport::Server::builder().add_routes(routes);
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        let error = Client::new(options).submit(submission()).await.unwrap_err();
        assert!(!matches!(error, FusionError::Internal(_)) && error.is_transient(), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}
