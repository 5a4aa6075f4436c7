//! The enrolment route: a machine requests a certificate, with which it fetches the sealed part of its config.

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

/// The maximum size of a certificate signing request.
const REQUEST_SIZE: usize = 16 * 1024;
/// The maximum length of the name that a machine chooses.
const NAME_LENGTH: usize = 100;

impl Routes {
    /// Handles the certificate request of a machine.
    pub(super) async fn enrol(
        &self,
        pool: &str,
        head: &Parts,
        body: Incoming,
        peer: &Peer,
    ) -> HttpResponse {
        let start = Instant::now();
        let mut entry =
            AccessLogEntry { pool: pool.to_owned(), part: "enrol", ..AccessLogEntry::default() };
        let outcome = self.enrol_machine(pool, head, body, peer, &mut entry).await;
        let response = match &outcome {
            Ok(EnrolmentReply::Certificate(pem)) => Response::new(Full::from(pem.clone())),
            Ok(EnrolmentReply::Pending) => {
                let mut response = empty_response(StatusCode::ACCEPTED);
                let seconds = HeaderValue::from(machinist_core::serve::error::RETRY_AFTER_SECONDS);
                response.headers_mut().insert(header::RETRY_AFTER, seconds);
                response
            }
            Err(refusal) => self.refusal_response(refusal),
        };
        self.log_request(&entry, head, peer.address, &response, outcome.err(), start);
        response
    }

    async fn enrol_machine(
        &self,
        pool: &str,
        head: &Parts,
        body: Incoming,
        peer: &Peer,
        entry: &mut AccessLogEntry,
    ) -> ServeResult<EnrolmentReply> {
        let address = peer.address.ip();
        self.access.check_address(address)?;
        let Some(registrar) = self.registrar.as_ref().filter(|_| peer.is_secure) else {
            return Err(Arc::new(ServeError::Forbidden("machines can enrol only over TLS")));
        };
        self.source.pool(pool).await?;
        entry.is_known = true;
        let body = Limited::new(body, REQUEST_SIZE).collect().await;
        let body = body.map_err(|error| ServeError::BadRequest(error.to_string()))?.to_bytes();
        let text =
            str::from_utf8(&body).map_err(|_| ServeError::BadRequest("not UTF-8 text".into()))?;
        let request = CertificateRequest::parse(text);
        let request = request.map_err(|error| ServeError::BadRequest(error.to_string()))?;
        entry.machine = request.key_hash();
        // A token is optional, but a wrong one is rejected. An enrolled machine may repeat its request with a used-up token.
        let is_repeated = registrar.is_enrolled(&entry.machine, pool);
        let has_token = head.headers.contains_key(header::AUTHORIZATION) && !is_repeated;
        let token = match has_token {
            true => Some(self.access.authenticate(pool, head, address)?),
            false => None,
        };
        if let Some(token) = &token {
            entry.token.clone_from(&token.id);
        }
        let name = query_parameter(head.uri.query(), "name").unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_LENGTH).collect();
        let enrolment = EnrolmentRequest {
            pool,
            request: &request,
            id: &entry.machine,
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
        Ok(registrar.handle_request(&enrolment, grant).await?)
    }
}
