"""Amazon's services for tests, on 127.0.0.1: moto where it is true, and SageMaker with its documented life cycle."""
