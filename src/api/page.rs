//! `GET {prefix}/{queue}/page`: the waiting room. Enters who comes without a place, and sends on
//! who is active.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use bytes::Bytes;
use http::header::SET_COOKIE;
use http::request::Parts;
use http::{Request, Response, StatusCode};

use crate::gate::answer::{page_location, see_other};
use crate::gate::credentials::Carrier;
use crate::gate::{Entry, Navigation};
use crate::page::PageContext;
use crate::problem::{Code, Problem};
use crate::queue::settings::Mode;
use crate::queue::view::{Status, View};
use crate::route::return_target::ReturnTarget;
use crate::store::mirror::Seen;
use crate::token::Claims;

use super::Api;
use super::caller::{Asker, Call, Early, Opening, early};

pub(super) async fn serve(
    State(api): State<Arc<Api>>,
    Path(queue): Path<String>,
    request: Request<Body>,
) -> Response<Body> {
    let (parts, _) = request.into_parts();
    match page(&api, &queue, &parts).await {
        Ok(response) => response.map(Body::from),
        Err(response) => response.into_response(),
    }
}

/// What the query of the page says.
struct Asked {
    back: Option<ReturnTarget>,
    /// The visitor cookie was set one request ago.
    joining: bool,
}

async fn page(api: &Api, name: &str, parts: &Parts) -> Result<Response<Bytes>, Early> {
    let call = api.call(name, Opening::Anyone, parts).await?;
    let asked = api.asked(parts);
    if call.queue.settings().mode == Mode::PassAll || call.queue.fails_open() {
        return Ok(go_on(&asked));
    }
    // A token that cannot be used counts as none: the person is entered as who she is.
    if let Ok(Asker::Token { claims, carrier }) = api.asker(&call) {
        match call.queue.poll(&claims).await {
            Ok(Seen::Active { .. }) => return Ok(go_on(&asked)),
            Ok(seen @ Seen::Waiting { .. }) => {
                let mut response = api.show(&call, &asked, &call.queue.view(seen));
                if carrier == Carrier::Cookie {
                    api.renew_cookie(&mut response, &call, &claims, seen);
                }
                return Ok(response);
            }
            Ok(Seen::Gone(_)) => {}
            Err(_) => {
                return Ok(api.show(&call, &asked, &call.queue.view_of(Status::StoreAway)));
            }
        }
    }
    // Pictures and scripts of other sites, too, can ask for this page.
    if Navigation::of(parts) != Navigation::Yes {
        return Ok(api.show(&call, &asked, &call.queue.view_of(Status::Joining)));
    }
    let entered = api.gate.enter(&call.queue, &call.identities).await;
    let Ok(entry) = entered else {
        return Ok(api.show(&call, &asked, &call.queue.view_of(Status::StoreAway)));
    };
    match entry {
        Entry::Placed { claims, seen, .. } => Ok(api.placed(&call, &asked, &claims, seen)),
        Entry::Refused(status) => Ok(api.show(&call, &asked, &call.queue.view_of(status))),
        Entry::Nobody => Err(early(Problem::new(Code::Unauthenticated))),
        Entry::NeedsVisitor if asked.joining => {
            Ok(api.show(&call, &asked, &call.queue.view_of(Status::CookiesNeeded)))
        }
        Entry::NeedsVisitor => {
            let (_, cookie) = api.gate.visitors().issue(call.caller.https());
            let location =
                page_location(api.gate.prefix(), call.queue.name(), asked.back.as_ref(), true);
            let mut response = see_other(&location);
            response.headers_mut().append(SET_COOKIE, cookie);
            Ok(response)
        }
    }
}

impl Api {
    fn asked(&self, parts: &Parts) -> Asked {
        let mut asked = Asked { back: None, joining: false };
        for (name, value) in pairs(parts.uri.query().unwrap_or_default()) {
            match name.as_ref() {
                "return" | "redirect_url" if asked.back.is_none() => {
                    let origins = self.gate.public_origins();
                    asked.back = ReturnTarget::parse(&value, origins, self.gate.prefix());
                }
                "c" => asked.joining = value == "1",
                _ => {}
            }
        }
        asked
    }

    fn placed(
        &self,
        call: &Call<'_>,
        asked: &Asked,
        claims: &Claims,
        seen: Seen,
    ) -> Response<Bytes> {
        let mut response = match seen {
            Seen::Active { .. } => go_on(asked),
            Seen::Waiting { .. } => self.show(call, asked, &call.queue.view(seen)),
            // It ended this very moment: the next request enters anew.
            Seen::Gone(_) => self.show(call, asked, &call.queue.view_of(Status::Joining)),
        };
        let https = call.caller.https();
        self.gate.add_token_cookie(&mut response, call.parts, &call.queue, claims, https);
        response
    }

    fn show(&self, call: &Call<'_>, asked: &Asked, view: &View) -> Response<Bytes> {
        let name = call.queue.name();
        let page_url = page_location(self.gate.prefix(), name, asked.back.as_ref(), false);
        let context = PageContext {
            status: StatusCode::OK,
            page_url: &page_url,
            return_target: asked.back.as_ref().map(ReturnTarget::as_str),
        };
        self.gate.page().render(view, &context)
    }
}

/// The names and values of a query, decoded once. `+` means itself.
pub(super) fn pairs(
    query: &str,
) -> impl Iterator<Item = (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)> {
    let decode = |text| percent_encoding::percent_decode_str(text).decode_utf8().ok();
    query.split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(name)?, decode(value)?))
    })
}

fn go_on(asked: &Asked) -> Response<Bytes> {
    see_other(asked.back.as_ref().map_or("/", ReturnTarget::as_str))
}
