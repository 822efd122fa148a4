//! What an answer's HTTP status means, for the arbiter that sends it and for whoever hears it.

use crate::job::Problem;

/// Every status but success that the arbiter answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// What was sent makes no sense.
    Invalid = 400,
    /// The secret is missing or wrong.
    Unauthorized = 401,
    /// It is not for whoever asks.
    Forbidden = 403,
    /// There is no such job, I/O node or path.
    NotFound = 404,
    /// The path does not know this method.
    Method = 405,
    /// It contradicts what there is.
    Conflict = 409,
    /// More was sent than is read.
    TooLarge = 413,
    /// This arbiter does not lead: [`Problem::leader`] says who does, where that is known.
    NotLeading = 421,
    /// Something failed that should not.
    Failed = 500,
    /// As much is under way as can be: try again.
    Busy = 503,
    /// It took too long: try again.
    TimedOut = 504,
}

impl Status {
    /// Every one.
    pub const ALL: [Status; 11] = [
        Status::Invalid,
        Status::Unauthorized,
        Status::Forbidden,
        Status::NotFound,
        Status::Method,
        Status::Conflict,
        Status::TooLarge,
        Status::NotLeading,
        Status::Failed,
        Status::Busy,
        Status::TimedOut,
    ];

    /// The number in the answer.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The status of this number.
    pub fn from_code(code: u16) -> Option<Status> {
        Status::ALL.into_iter().find(|s| s.code() == code)
    }

    /// Whether another arbiter, or this one later, may answer: the question itself was not judged.
    pub const fn try_again(self) -> bool {
        matches!(self, Status::NotLeading | Status::Busy | Status::TimedOut)
    }
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The arbiter says no, and will say so again.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// Nobody answers, or nobody that leads.
    #[error("the arbiter does not answer: {0}")]
    Away(String),
    /// Somebody answers everywhere who has not proved to be the arbiter, and will not later.
    #[error("whoever answers is not trusted to be the arbiter: {0}")]
    Untrusted(String),
}

impl Unanswered {
    /// What an answer with this status and these words means.
    pub fn new(code: u16, problem: Problem) -> Unanswered {
        match Status::from_code(code) {
            Some(Status::NotFound) => Unanswered::NotFound(problem.error),
            Some(status) if status.try_again() => Unanswered::Away(problem.error),
            _ => Unanswered::Refused(problem.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_answered_elsewhere_is_not_final() {
        let problem = || Problem { error: "no".into(), leader: None };
        for status in Status::ALL {
            assert_eq!(Status::from_code(status.code()), Some(status));
            let heard = Unanswered::new(status.code(), problem());
            assert_eq!(matches!(heard, Unanswered::Away(_)), status.try_again(), "{status:?}");
        }
        assert_eq!(Unanswered::new(404, problem()), Unanswered::NotFound("no".into()));
        assert_eq!(Unanswered::new(418, problem()), Unanswered::Refused("no".into()));
    }
}
