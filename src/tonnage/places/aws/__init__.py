"""Amazon's own services as places: SageMaker training jobs, EC2 fleets."""
