//! Error responses according to RFC 9457: `application/problem+json`.

use axum::Json;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::control::ControlError;

/// `Content-Type` of a [`Problem`].
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// The reason for an error response (RFC 9457, section 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The kind of error, as a URN that programs may compare.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of error, for humans.
    pub title: String,
    /// Status of the response.
    pub status: u16,
    /// A detailed description, for humans.
    pub detail: String,
    /// The most similar name or word that would have been accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did_you_mean: Option<String>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        let (word, status, title) = kind.describe();
        Self {
            kind: format!("urn:skep:problem:{word}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            did_you_mean: None,
        }
    }

    pub(crate) fn no_route(uri: &Uri) -> Self {
        let detail = format!("no {:?} here; /api/v1/openapi.json lists what there is", uri.path());
        Self::new(ProblemKind::NotFound, detail)
    }

    fn hint(self, did_you_mean: Option<String>) -> Self {
        Self { did_you_mean, ..self }
    }
}

/// The kinds of error responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The request is malformed.
    Malformed,
    /// The token is missing or wrong.
    Unauthorized,
    /// The host name used is not one of the API's own.
    ForeignHost,
    /// The client's network is not configured.
    ForeignAddress,
    /// The request was sent by a page of a foreign origin.
    ForeignOrigin,
    /// A change was requested over TCP, but no token is configured.
    ReadOnly,
    NotFound,
    NoSuchMethod,
    Timeout,
    Conflict,
    TooLarge,
    NotJson,
    Invalid,
    Unavailable,
}

impl ProblemKind {
    /// Returns the word, status and title.
    fn describe(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::Malformed => ("malformed", StatusCode::BAD_REQUEST, "Malformed request"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "Token needed"),
            Self::ForeignHost => ("foreign-host", StatusCode::FORBIDDEN, "Host not allowed"),
            Self::ForeignAddress => {
                ("foreign-address", StatusCode::FORBIDDEN, "Address not allowed")
            }
            Self::ForeignOrigin => ("foreign-origin", StatusCode::FORBIDDEN, "Origin not allowed"),
            Self::ReadOnly => ("read-only", StatusCode::FORBIDDEN, "Read-only without a token"),
            Self::NotFound => ("not-found", StatusCode::NOT_FOUND, "Not found"),
            Self::NoSuchMethod => {
                ("no-such-method", StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
            }
            Self::Timeout => ("timeout", StatusCode::REQUEST_TIMEOUT, "Out of time"),
            Self::Conflict => ("conflict", StatusCode::CONFLICT, "Conflict"),
            Self::TooLarge => ("too-large", StatusCode::PAYLOAD_TOO_LARGE, "Too large"),
            Self::NotJson => ("not-json", StatusCode::UNSUPPORTED_MEDIA_TYPE, "Not JSON"),
            Self::Invalid => ("invalid", StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "Unavailable"),
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::NotFound { what, did_you_mean } => {
                Self::new(ProblemKind::NotFound, what).hint(did_you_mean)
            }
            ControlError::Conflict { what } => Self::new(ProblemKind::Conflict, what),
            ControlError::Invalid { what, did_you_mean } => {
                Self::new(ProblemKind::Invalid, what).hint(did_you_mean)
            }
            ControlError::Unavailable { what } => Self::new(ProblemKind::Unavailable, what),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"skep\""));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_process_have_the_status_that_fits() {
        let what = || "it".to_owned();
        let near = || Some("node-1".to_owned());
        for (error, status, hint) in [
            (ControlError::NotFound { what: what(), did_you_mean: near() }, 404, near()),
            (ControlError::Conflict { what: what() }, 409, None),
            (ControlError::Invalid { what: what(), did_you_mean: None }, 422, None),
            (ControlError::Unavailable { what: what() }, 503, None),
        ] {
            let problem = Problem::from(error);
            assert_eq!((problem.status, problem.did_you_mean.clone()), (status, hint));
            assert_eq!(problem.into_response().status().as_u16(), status);
        }
    }
}
