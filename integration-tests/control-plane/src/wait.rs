//! Waiting for a condition, with a deadline: what tests use instead of sleeping.

use anyhow::{Result, anyhow};
use std::future::Future;
use std::time::{Duration, Instant};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Tries `attempt` until it succeeds and gives its value; fails once `within` is over.
///
/// An attempt answers with an error as long as the condition does not hold. The error says what was seen instead ("2 of
/// 4 pods run"); the one seen last is part of the failure, behind `what` was waited for. An attempt is also ended by
/// the deadline. The pause between two attempts grows from 10 to 250 ms.
///
/// # Errors
/// When the deadline has passed.
pub async fn eventually<T, Attempt, Answer>(what: &str, within: Duration, mut attempt: Attempt) -> Result<T>
where
    Attempt: FnMut() -> Answer,
    Answer: Future<Output = Result<T>>,
{
    let start = Instant::now();
    let deadline = start + within;
    let mut pause = FIRST_PAUSE;
    let mut attempts = 0_u32;
    let mut last_seen: Option<anyhow::Error> = None;
    loop {
        attempts += 1;
        match tokio::time::timeout_at(deadline.into(), attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(seen)) => last_seen = Some(seen),
            Err(_) if last_seen.is_none() => last_seen = Some(anyhow!("the first look at it did not come to an end")),
            Err(_) => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let seen = last_seen.unwrap_or_else(|| anyhow!("nothing"));
            return Err(anyhow!("{what}: not within {within:?} ({attempts} attempts); last seen: {seen:#}"));
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::eventually;
    use anyhow::bail;
    use std::cell::Cell;
    use std::time::Duration;

    #[tokio::test]
    async fn gives_the_value_of_the_first_attempt_that_succeeds() {
        let attempts = Cell::new(0);
        let value = eventually("three attempts", Duration::from_secs(5), || {
            attempts.set(attempts.get() + 1);
            let attempt = attempts.get();
            async move { if attempt < 3 { bail!("attempt {attempt}") } else { Ok(attempt) } }
        })
        .await;
        assert_eq!(value.unwrap(), 3);
    }

    #[tokio::test]
    async fn says_what_was_seen_last_when_the_deadline_passes() {
        let failure =
            eventually::<(), _, _>("all pods run", Duration::from_millis(30), || async { bail!("2 of 4 run") }).await;
        let text = failure.unwrap_err().to_string();
        assert!(text.starts_with("all pods run: not within 30ms ("), "{text}");
        assert!(text.ends_with("last seen: 2 of 4 run"), "{text}");
    }

    #[tokio::test]
    async fn an_attempt_that_hangs_is_ended_by_the_deadline() {
        let failure = eventually::<(), _, _>("an answer", Duration::from_millis(30), std::future::pending).await;
        assert!(failure.unwrap_err().to_string().contains("did not come to an end"));
    }
}
