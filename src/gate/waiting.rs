//! Who may not pass: entered, sent to the waiting room, or refused.

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::{HeaderMap, Response};

use crate::identity::cookies::set_cookie_name;
use crate::page::PageContext;
use crate::problem::{Code, Problem};
use crate::queue::view::{Status, View};
use crate::route::return_target::ReturnTarget;
use crate::route::{Gated, WhenWaiting};
use crate::store::StoreError;
use crate::store::mirror::{LocalQueue, Seen};
use crate::token::Claims;

use super::credentials::Carrier;
use super::headers::Passage;
use super::metrics::Decision;
use super::{Entry, Gate, Navigation, Verdict, Visit, answer};

impl Gate {
    /// Makes the browser forget a token cookie that counts as none, unless it gets a better one.
    pub(super) fn clear_useless_cookie(
        &self,
        response: &mut Response<Bytes>,
        request: &HeaderMap,
        queue: &LocalQueue,
        https: bool,
    ) {
        let name = self.parts.carriers.cookies.token(queue.name(), https);
        let is_set = response
            .headers()
            .get_all(SET_COOKIE)
            .iter()
            .any(|line| set_cookie_name(line) == name.as_bytes());
        let keyring = &self.parts.keyring;
        if !is_set
            && self.parts.carriers.has_useless_cookie(keyring, queue.name(), request, https)
            && let Some(line) = self.parts.carriers.clear_cookie(queue.name(), https)
        {
            response.headers_mut().append(SET_COOKIE, line);
        }
    }

    /// A request whose token, if any, is of no use: enter it, or refuse it with `code`.
    pub(super) async fn without_token(
        &self,
        visit: Visit<'_>,
        gated: &Gated,
        queue: &LocalQueue,
        code: Code,
    ) -> Verdict {
        let enters = gated.auto_enter
            && gated.when_waiting != WhenWaiting::Reject
            && Navigation::of(visit.parts) == Navigation::Yes;
        // Who enters is noted all the same.
        if !queue.store_answers() && !enters {
            return self.store_away(visit, gated, queue, None, &StoreError::away());
        }
        if code == Code::QueueClosed {
            return self.wait(&visit, gated, queue, &queue.view_of(Status::Closed), None);
        }
        if !enters {
            return self.wait_or_refuse(&visit, gated, queue, code);
        }
        let identities = self.identities(&visit.caller, visit.parts, queue);
        match self.enter(queue, &identities).await {
            Ok(Entry::Placed { claims, user, seen, .. }) => {
                let user = user.as_ref();
                let seen = if matches!(seen, Seen::Active { .. }) {
                    match queue.pass(&claims).await {
                        Ok(seen) => seen,
                        Err(error) => {
                            let proof = Some((&claims, user, Carrier::Cookie));
                            return self.store_away(visit, gated, queue, proof, &error);
                        }
                    }
                } else {
                    seen
                };
                if let Seen::Active { place, until, .. } = seen {
                    let passage =
                        Passage::active(queue, &claims, user, place, until, Carrier::Cookie);
                    return self.forward(visit, Some((queue, Decision::Pass)), Some(passage));
                }
                let view = match seen {
                    // It ended this very moment: the next request enters anew.
                    Seen::Gone(_) => queue.view_of(Status::Joining),
                    seen => queue.view(seen),
                };
                self.wait(&visit, gated, queue, &view, Some(&claims))
            }
            Ok(Entry::NeedsVisitor) => self.invite(&visit, gated, queue),
            Ok(Entry::Nobody) => self
                .refuse(Some(queue), Problem::new(Code::Unauthenticated).with_queue(queue.name())),
            Ok(Entry::Refused(status)) => {
                self.wait(&visit, gated, queue, &queue.view_of(status), None)
            }
            Err(error) => self.store_away(visit, gated, queue, None, &error),
        }
    }

    /// Sends an unknown visitor off with a cookie: the place is taken when it comes back.
    pub(super) fn invite(&self, visit: &Visit<'_>, gated: &Gated, queue: &LocalQueue) -> Verdict {
        let (_, cookie) = self.parts.chain.visitors().issue(visit.caller.https());
        let mut response = match gated.when_waiting {
            WhenWaiting::Redirect => self.to_page(visit, queue, true),
            WhenWaiting::Page | WhenWaiting::Reject => {
                self.inline_page(visit, gated, &queue.view_of(Status::Joining))
            }
        };
        response.headers_mut().append(SET_COOKIE, cookie);
        self.parts.metrics.count(queue, Decision::Wait);
        Verdict::Answer(response)
    }

    /// Navigations get the waiting room as the route says; everything else gets the refusal that
    /// belongs to the view.
    pub(super) fn wait(
        &self,
        visit: &Visit<'_>,
        gated: &Gated,
        queue: &LocalQueue,
        view: &View,
        entered: Option<&Claims>,
    ) -> Verdict {
        let navigates = Navigation::of(visit.parts) != Navigation::No;
        let mut response = match gated.when_waiting {
            WhenWaiting::Redirect if navigates => self.to_page(visit, queue, false),
            WhenWaiting::Page if navigates => self.inline_page(visit, gated, view),
            _ => answer::refusal(self.prefix(), view)
                .with_status(gated.refuse_status)
                .into_response(),
        };
        if let Some(claims) = entered {
            self.add_token_cookie(&mut response, visit.parts, queue, claims, visit.caller.https());
        }
        answer::harden(response.headers_mut());
        self.parts.metrics.count(queue, Decision::Wait);
        Verdict::Answer(response)
    }

    /// As [`Gate::wait`] for who holds no usable token and is not entered here.
    pub(super) fn wait_or_refuse(
        &self,
        visit: &Visit<'_>,
        gated: &Gated,
        queue: &LocalQueue,
        code: Code,
    ) -> Verdict {
        let navigates = Navigation::of(visit.parts) != Navigation::No;
        let response = match gated.when_waiting {
            WhenWaiting::Redirect if navigates => self.to_page(visit, queue, false),
            WhenWaiting::Page if navigates => {
                self.inline_page(visit, gated, &queue.view_of(Status::Joining))
            }
            _ => {
                let problem = answer::with_links(Problem::new(code), self.prefix(), queue.name());
                // Entering is possible at once.
                problem.with_status(gated.refuse_status).with_retry_after(1).into_response()
            }
        };
        self.parts.metrics.count(queue, Decision::Wait);
        Verdict::Answer(answer::hardened(response))
    }

    /// 303 to the waiting room page, to come back here afterwards.
    pub(super) fn to_page(
        &self,
        visit: &Visit<'_>,
        queue: &LocalQueue,
        joining: bool,
    ) -> Response<Bytes> {
        let back = ReturnTarget::of(&visit.target);
        let location = answer::page_location(self.prefix(), queue.name(), back.as_ref(), joining);
        answer::see_other(&location)
    }

    pub(super) fn inline_page(
        &self,
        visit: &Visit<'_>,
        gated: &Gated,
        view: &View,
    ) -> Response<Bytes> {
        let context = PageContext {
            status: gated.page_status,
            page_url: visit.target.as_str(),
            return_target: None,
        };
        self.parts.page.render(view, &context)
    }
}
