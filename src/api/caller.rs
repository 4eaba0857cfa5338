//! What every endpoint finds out first: the queue, the caller, the token and whose it is.

use std::sync::Arc;

use axum::body::Body;
use http::Response;
use http::request::Parts;

use crate::gate::Caller;
use crate::gate::credentials::{Carrier, Ownership, Presented};
use crate::identity::Identities;
use crate::identity::client_address::Connection;
use crate::problem::{Code, Problem};
use crate::queue::{QueueName, UserId, UserSource};
use crate::store::StoreError;
use crate::store::mirror::LocalQueue;
use crate::token::Claims;

use super::{Api, answer};

/// An answer that ends a call early.
pub(super) struct Early(Box<Response<Body>>);

impl Early {
    pub(super) fn into_response(self) -> Response<Body> {
        *self.0
    }
}

impl From<Problem> for Early {
    fn from(problem: Problem) -> Self {
        Self(Box::new(answer::problem(problem)))
    }
}

impl From<StoreError> for Early {
    fn from(_: StoreError) -> Self {
        answer::store_away().into()
    }
}

pub(super) fn early(problem: Problem) -> Early {
    problem.into()
}

/// One call about one queue.
pub(super) struct Call<'a> {
    pub(super) parts: &'a Parts,
    pub(super) caller: Caller,
    pub(super) queue: Arc<LocalQueue>,
    pub(super) identities: Identities,
}

/// Who is asking, after all checks.
pub(super) enum Asker {
    /// The owner of a token.
    Token { claims: Claims, carrier: Carrier },
    /// Somebody with a token that is older than the queue.
    Outlived,
    /// A user without a token.
    User(UserId),
    /// Nobody that is known.
    Nobody,
}

/// Who can bring an instance of a template to life by calling. Made-up names must not use up the
/// instances a template may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    /// Whoever calls: the call enters.
    Anyone,
    /// The holder of a token for exactly that queue, which must then exist elsewhere.
    TokenHolder,
    /// Nobody.
    Nobody,
}

impl Api {
    /// The queue of this name, or the answer that there is none.
    pub(super) async fn queue(
        &self,
        name: &str,
        opening: Opening,
        parts: &Parts,
    ) -> Result<Arc<LocalQueue>, Early> {
        let not_found = || early(Problem::new(Code::QueueNotFound));
        let name = QueueName::new(name).ok_or_else(not_found)?;
        if let Some(queue) = self.gate.mirror().known(&name) {
            return Ok(queue);
        }
        let opens = match opening {
            Opening::Anyone => true,
            Opening::TokenHolder => {
                let caller = self.gate.caller(parts, &Connection::of(&parts.extensions));
                matches!(self.gate.presented(parts, &caller, &name), Presented::Token { .. })
            }
            Opening::Nobody => false,
        };
        if !opens {
            return Err(not_found());
        }
        match self.gate.mirror().queue(&name).await {
            Ok(Some(queue)) => Ok(queue),
            Ok(None) => Err(not_found()),
            Err(error) => Err(error.into()),
        }
    }

    /// A call about queue `name`. An identity that is claimed and does not hold ends it.
    pub(super) async fn call<'a>(
        &self,
        name: &str,
        opening: Opening,
        parts: &'a Parts,
    ) -> Result<Call<'a>, Early> {
        let queue = self.queue(name, opening, parts).await?;
        let caller = self.gate.caller(parts, &Connection::of(&parts.extensions));
        let identities = self.gate.identities(&caller, parts, &queue);
        if identities.rejected.is_some() {
            return Err(early(Problem::new(Code::Unauthenticated).with_queue(queue.name())));
        }
        Ok(Call { parts, caller, queue, identities })
    }

    /// Whose call this is: the token's owner, else a verified user, else nobody.
    pub(super) fn asker(&self, call: &Call<'_>) -> Result<Asker, Early> {
        let name = call.queue.name();
        let refused = |code| early(Problem::new(code).with_queue(name));
        match self.gate.presented(call.parts, &call.caller, name) {
            Presented::Malformed => Err(refused(Code::TokenInvalid)),
            Presented::Conflict => Err(refused(Code::TokenConflict)),
            Presented::Forged | Presented::Foreign => Err(refused(Code::TokenOwnerNotMatch)),
            Presented::Nothing => Ok(match call.identities.first() {
                Some(user) => Asker::User(user.clone()),
                None => Asker::Nobody,
            }),
            Presented::Token { claims, .. } if call.queue.outlived(&claims) => Ok(Asker::Outlived),
            Presented::Token { claims, carrier } => {
                match self.gate.ownership(&claims, &call.identities, &call.queue) {
                    Ownership::Proven(_) => Ok(Asker::Token { claims, carrier }),
                    Ownership::Foreign => Err(refused(Code::TokenOwnerNotMatch)),
                    // The compatibility set's page asks for its rank with nothing but the token.
                    Ownership::Unproven if claims.source == UserSource::Query => {
                        Ok(Asker::Token { claims, carrier })
                    }
                    Ownership::Unproven => Err(refused(Code::Unauthenticated)),
                }
            }
        }
    }
}
