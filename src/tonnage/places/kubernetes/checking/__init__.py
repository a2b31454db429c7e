"""What an API server would say of an object, without one: strict decoding, schemas with CEL, the rules of each kind."""
