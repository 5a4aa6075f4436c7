//! A machine asks for a certificate, with which it gets the sealed half of its config.

use std::sync::Arc;
use std::time::Instant;

use http::header::{self, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use machinist_core::serve::ServeError;
use machinist_core::serve::route::query_parameter;
use machinist_hub::auth::certificates::SigningRequest as CertificateRequest;

use super::super::enrol::{EnrolmentReply, EnrolmentRequest};
use super::super::http_response::{HttpResponse, empty_response};
use super::super::listen::Peer;
use super::super::responses::ServeResult;
use super::{AccessLogEntry, Routes};

/// A request for a certificate is at most this large.
const REQUEST_SIZE: usize = 16 * 1024;
/// What a machine calls itself is at most this long.
const NAME_LENGTH: usize = 100;

impl Routes {
    /// A machine asks for a certificate.
    pub(super) async fn enrol(
        &self,
        pool: &str,
        head: &Parts,
        body: Incoming,
        peer: &Peer,
    ) -> HttpResponse {
        let start = Instant::now();
        let mut account =
            AccessLogEntry { pool: pool.to_owned(), part: "enrol", ..AccessLogEntry::default() };
        let outcome = self.told(pool, head, body, peer, &mut account).await;
        let answer = match &outcome {
            Ok(EnrolmentReply::Certificate(pem)) => Response::new(Full::from(pem.clone())),
            Ok(EnrolmentReply::Pending) => {
                let mut answer = empty_response(StatusCode::ACCEPTED);
                let seconds = HeaderValue::from(machinist_core::serve::error::RETRY_AFTER_SECONDS);
                answer.headers_mut().insert(header::RETRY_AFTER, seconds);
                answer
            }
            Err(refusal) => self.refusal_response(refusal),
        };
        self.log_request(&account, head, peer.address, &answer, outcome.err(), start);
        answer
    }

    async fn told(
        &self,
        pool: &str,
        head: &Parts,
        body: Incoming,
        peer: &Peer,
        account: &mut AccessLogEntry,
    ) -> ServeResult<EnrolmentReply> {
        let address = peer.address.ip();
        self.access.check_address(address)?;
        let Some(registrar) = self.registrar.as_ref().filter(|_| peer.is_secure) else {
            return Err(Arc::new(ServeError::Forbidden("machines enrol over TLS only")));
        };
        self.source.pool(pool).await?;
        account.is_known = true;
        let body = Limited::new(body, REQUEST_SIZE).collect().await;
        let body = body.map_err(|error| ServeError::BadRequest(error.to_string()))?.to_bytes();
        let text = str::from_utf8(&body).map_err(|_| ServeError::BadRequest("no text".into()))?;
        let request = CertificateRequest::parse(text);
        let request = request.map_err(|error| ServeError::BadRequest(error.to_string()))?;
        account.machine = request.key_hash();
        // A token is not needed, but one that is wrong is no token. Whoever is in asks again with one that is used up.
        let asks_again = registrar.is_enrolled(&account.machine, pool);
        let has_token = head.headers.contains_key(header::AUTHORIZATION) && !asks_again;
        let token = match has_token {
            true => Some(self.access.authenticate(pool, head, address)?),
            false => None,
        };
        if let Some(token) = &token {
            account.token.clone_from(&token.id);
        }
        let name = query_parameter(head.uri.query(), "name").unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_LENGTH).collect();
        let application = EnrolmentRequest {
            pool,
            request: &request,
            id: &account.machine,
            name: &name,
            address,
            token: token.as_ref().map(|token| token.id.as_str()),
        };
        let grant = async {
            match &token {
                Some(token) => self.access.count_use(token).await,
                None => Ok(()),
            }
        };
        Ok(registrar.handle_request(&application, grant).await?)
    }
}
