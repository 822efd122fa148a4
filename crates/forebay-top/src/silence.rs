//! For how long nobody has answered: whoever is asked may stand still, which no error tells.

use std::time::{Duration, Instant};

/// An answer may take so long before it is said that there is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Since the last answer.
pub(crate) struct Silence {
    since: Instant,
    /// Between two questions.
    interval: Duration,
    /// What came instead of an answer.
    why: Option<String>,
}

impl Silence {
    /// From now on somebody is asked, as often as this.
    pub(crate) fn new(now: Instant, interval: Duration) -> Silence {
        Silence { since: now, interval, why: None }
    }

    /// There was an answer.
    pub(crate) fn over(&mut self, now: Instant) {
        (self.since, self.why) = (now, None);
    }

    /// Or it is known why there is none.
    pub(crate) fn because(&mut self, why: String) {
        self.why = Some(why);
    }

    /// What there is to be said of it, by now.
    pub(crate) fn words(&self, now: Instant) -> Option<String> {
        let silent = now.saturating_duration_since(self.since);
        let long = (silent > self.interval + PATIENCE).then(|| format!("for {} s", silent.as_secs()));
        match (long, &self.why) {
            (Some(long), Some(why)) => Some(format!("{long}: {why}")),
            (long, why) => long.or(why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_when_it_is_long_and_until_it_ends() {
        let (begin, interval) = (Instant::now(), Duration::from_secs(1));
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut silence = Silence::new(begin, interval);
        assert_eq!(silence.words(at(3)), None);
        assert_eq!(silence.words(at(4)).as_deref(), Some("for 4 s"));
        silence.because("refused".into());
        assert_eq!(silence.words(at(9)).as_deref(), Some("for 9 s: refused"));
        silence.over(at(10));
        assert_eq!(silence.words(at(10)), None);
        silence.because("refused".into());
        assert_eq!(silence.words(at(11)).as_deref(), Some("refused"));
    }
}
