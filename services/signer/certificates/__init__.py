"""Certificates: issuing, enrolment, assumption of a service, revocation."""
